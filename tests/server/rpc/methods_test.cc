#include "server/rpc/methods.h"

#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "convgrad/v1/service.pb.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

absl::string_view TypeOf(const google::protobuf::MethodDescriptor& method) {
  if (method.client_streaming()) {
    return method.server_streaming() ? "bidi_stream" : "client_stream";
  }
  return method.server_streaming() ? "server_stream" : "unary";
}

TEST(Methods, HaveOneRowForEachRpcOfTheContract) {
  // service.proto lists all services.
  const google::protobuf::FileDescriptor* file =
      google::protobuf::DescriptorPool::generated_pool()->FindFileByName(
          v1::ConvForwardRequest::descriptor()->file()->name());
  std::set<const Method*> rows;
  for (int i = 0; i < file->service_count(); ++i) {
    const google::protobuf::ServiceDescriptor& service = *file->service(i);
    for (int j = 0; j < service.method_count(); ++j) {
      const std::string& name = service.method(j)->name();
      const Method& row =
          FindMethod(absl::StrCat("/", service.full_name(), "/", name));
      EXPECT_EQ(row.name, name);
      EXPECT_EQ(row.service, service.full_name());
      EXPECT_EQ(row.type, TypeOf(*service.method(j)));
      EXPECT_TRUE(rows.insert(&row).second) << name;
    }
  }
  EXPECT_EQ(rows.size(), AllMethods().size());
}

TEST(Methods, RefuseAnyOtherPath) {
  for (const char* path :
       {"", "/", "ConvForward", "/convgrad.v1.ConvGrad",
        "/convgrad.v1.ConvGrad/", "/convgrad.v1.ConvGrad/ConvForwar",
        "/convgrad.v1.ConvGrad/ConvForwards",
        "/convgrad.v1.ConvGrad//ConvForward",
        "convgrad.v1.ConvGrad/ConvForward", "/convgrad.v2.ConvGrad/ConvForward",
        "/convgrad.v1.ConvGradSessions/ConvForward"}) {
    EXPECT_EQ(FindMethod(path).name, "unknown") << path;
  }
}

// A row that allows too much looks like any other, so the test lists all rows.
TEST(Methods, AllowNoMoreThanThis) {
  std::map<absl::string_view, std::pair<ClientRole, int64_t>> expected = {
      {"ConvForward", {ClientRole::kInfer, 0}},
      {"ConvForwardStream", {ClientRole::kInfer, 0}},
      {"GetCapabilities", {ClientRole::kInfer, 4096}},
      {"ListTensors", {ClientRole::kInfer, 0}},
      {"RunProgram", {ClientRole::kInfer, 0}},
      {"OpenSession", {ClientRole::kTrain, 32 << 10}},
      {"ResumeSession", {ClientRole::kTrain, 4096}},
      {"RenewSession", {ClientRole::kTrain, 4096}},
      {"CloseSession", {ClientRole::kTrain, 4096}},
      {"ListSessions", {ClientRole::kTrain, 4096}},
      {"HaveTensors", {ClientRole::kTrain, 256 << 10}},
      {"SaveState", {ClientRole::kTrain, 4096}},
      {"DropState", {ClientRole::kTrain, 4096}},
      {"Warmup", {ClientRole::kAdmin, 256 << 10}},
  };
  for (const Method& method : AllMethods()) {
    const auto [row, is_new] =
        expected.try_emplace(method.name, ClientRole::kTrain, 0);
    EXPECT_EQ(method.role, row->second.first) << method.name;
    EXPECT_EQ(method.max_bytes, row->second.second) << method.name;
  }
}

TEST(Methods, TakeTheRoleTrainWhereTheyChangeASession) {
  for (const Method& method : AllMethods()) {
    if (method.session == SessionRule::kChanges) {
      EXPECT_GE(method.role, ClientRole::kTrain) << method.name;
    }
    // A call with a short message changes no tensors and waits for no turn.
    if (method.max_bytes > 0) {
      EXPECT_NE(method.session, SessionRule::kChanges) << method.name;
      EXPECT_EQ(method.operation, "") << method.name;
    }
  }
}

}  // namespace
}  // namespace convgrad
