// Tests that fields 1 to 99 are critical in every message of a request.
#include <set>

#include "google/protobuf/unknown_field_set.h"
#include "proto/codec/codec.h"
#include "tests/proto/status_matchers.h"

namespace convgrad {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

void AddUnknown(int number, Message* message) {
  message->GetReflection()->MutableUnknownFields(message)->AddVarint(number, 1);
}

// Calls visit(message, path) for `message`, and then for a new message in each
// field that holds messages.
template <typename Visit>
void VisitMessages(Message* message, const std::string& path,
                   const Visit& visit) {
  visit(message, path);
  const auto& descriptor = *message->GetDescriptor();
  const auto& reflection = *message->GetReflection();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor* field = descriptor.field(i);
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    std::string name = path + (path.empty() ? "" : ".") + field->name();
    if (field->is_repeated()) name += "[0]";
    Message* inner = field->is_repeated()
                         ? reflection.AddMessage(message, field)
                         : reflection.MutableMessage(message, field);
    VisitMessages(inner, name, visit);
    reflection.ClearField(message, field);
  }
}

template <typename Request>
class CriticalFieldsTest : public ::testing::Test {};
using Requests =
    ::testing::Types<v1::ConvForwardRequest, v1::ConvBackwardRequest,
                     v1::GetCapabilitiesRequest>;
TYPED_TEST_SUITE(CriticalFieldsTest, Requests);

TYPED_TEST(CriticalFieldsTest, RefusesThemInEveryMessageByNumber) {
  TypeParam request;
  std::set<std::string> visited;
  VisitMessages(&request, "", [&](Message* message, const std::string& path) {
    SCOPED_TRACE(path);
    visited.insert(message->GetDescriptor()->full_name());
    AddUnknown(100, message);
    EXPECT_TRUE(CheckCriticalFields(request).ok());
    AddUnknown(99, message);
    const absl::Status status = CheckCriticalFields(request);
    ExpectError(status, absl::StatusCode::kUnimplemented, Reason::kUnknownField,
                path.empty() ? "request" : path);
    const std::string found = DetailOf(status)->found;
    EXPECT_NE(found.find("field 99"), std::string::npos) << found;
    EXPECT_NE(found.find(message->GetDescriptor()->full_name()),
              std::string::npos)
        << found;
    message->GetReflection()->MutableUnknownFields(message)->Clear();
  });
  if (request.GetDescriptor() != v1::GetCapabilitiesRequest::descriptor()) {
    // Both requests have tensors with every source and every destination.
    EXPECT_GE(visited.size(), 13u);
  }
}

TEST(CriticalFieldsTest, AreFoundInParsedBytes) {
  // The bytes are field 42, varint 1, which no message has.
  v1::ConvBackwardRequest request;
  ASSERT_TRUE(request.ParseFromString(std::string("\xd0\x02\x01", 3)));
  EXPECT_EQ(CheckCriticalFields(request).code(),
            absl::StatusCode::kUnimplemented);
}

TEST(CriticalFieldsTest, AreFoundInLaterEntriesOfAList) {
  v1::ConvBackwardRequest request;
  for (int i = 0; i < 3; ++i) request.mutable_operation()->add_results();
  AddUnknown(1, request.mutable_operation()->mutable_results(2));
  AddUnknown(7, request.mutable_operation()->mutable_results(2));
  ExpectError(CheckCriticalFields(request), absl::StatusCode::kUnimplemented,
              Reason::kUnknownField, "operation.results[2]");
}

}  // namespace
}  // namespace convgrad
