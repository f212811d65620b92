// `ScriptedSessions` is a gRPC service in the test's process that answers
// changes and reads of a session by the test's script.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "backends/core/mutex.h"
#include "backends/core/status.h"
#include "client/cpp/calls/rpc_status.h"
#include "convgrad/v1/error.pb.h"
#include "convgrad/v1/service.grpc.pb.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "proto/call_metadata.h"

namespace convgrad {

// Returns the reason in the status's detail; nullopt if it has none.
inline std::optional<Reason> ReasonOf(const absl::Status& status) {
  const auto detail = DetailOf(status);
  return detail ? std::optional(detail->reason) : std::nullopt;
}

// The metadata of one attempt of a change or a read, as the server reads it.
struct Attempt {
  int64_t epoch = -1;
  int64_t sequence = -1;
  int64_t acknowledged = -1;
  int64_t after = -1;
  std::string call_id;
  std::string name = {};  // of the tensor
  // The client has given up the change and sends a change that fails.
  bool is_void = false;
};

// The server's answer. An answer without a number counts as lost.
struct Answer {
  grpc::StatusCode code = grpc::StatusCode::OK;
  std::string reason = {};  // "": the answer has no detail
  int64_t number = -1;
  std::string pushback_ms = {};
  int64_t durable_number = -1;
  std::string field = "convgrad-session-sequence";
};

// `ScriptedSessions` implements DropTensors only.
class ScriptedSessions final : public v1::ConvGradSessions::Service {
 public:
  using Script = std::function<Answer(const Attempt&)>;

  ScriptedSessions() {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    stub_ = v1::ConvGradSessions::NewStub(grpc::CreateChannel(
        absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
  }
  ~ScriptedSessions() override { server_->Shutdown(); }

  // Calls DropTensors with the tensor `name`, or with no name if it is empty.
  absl::StatusOr<grpc::ByteBuffer> Send(const std::string& name,
                                        grpc::ClientContext* context) {
    v1::DropTensorsRequest request;
    if (!name.empty()) request.add_names(name);
    v1::DropTensorsResponse response;
    const grpc::Status status = stub_->DropTensors(context, request, &response);
    if (!status.ok()) return FromRpc(status, *context);
    return grpc::ByteBuffer();
  }

  // Sets the script. It may block. Several threads of the service call it at
  // once.
  void Follow(Script script) {
    MutexLock lock(&mutex_);
    script_ = std::move(script);
  }
  // Returns the attempts in the order of their arrival.
  std::vector<Attempt> attempts() {
    MutexLock lock(&mutex_);
    return attempts_;
  }
  void AwaitAttempts(size_t count) {
    MutexLock lock(&mutex_);
    while (attempts_.size() < count) arrived_.Wait(&mutex_);
  }
  void AwaitVoid() {
    const auto is_void = [](const Attempt& attempt) { return attempt.is_void; };
    MutexLock lock(&mutex_);
    while (std::none_of(attempts_.begin(), attempts_.end(), is_void)) {
      arrived_.Wait(&mutex_);
    }
  }

  grpc::Status DropTensors(grpc::ServerContext* context,
                           const v1::DropTensorsRequest* request,
                           v1::DropTensorsResponse*) override {
    const Attempt attempt = Read(*context, *request);
    Script script;
    {
      MutexLock lock(&mutex_);
      attempts_.push_back(attempt);
      arrived_.NotifyAll();
      script = script_;
    }
    const Answer answer = script(attempt);
    if (answer.number >= 0) {
      context->AddTrailingMetadata(kNumberTrailer, absl::StrCat(answer.number));
    }
    if (answer.durable_number >= 0) {
      context->AddTrailingMetadata(kDurableNumberTrailer,
                                   absl::StrCat(answer.durable_number));
    }
    if (!answer.pushback_ms.empty()) {
      context->AddTrailingMetadata(kPushbackTrailer, answer.pushback_ms);
    }
    if (!answer.reason.empty()) {
      v1::ErrorDetail detail;
      detail.set_reason(answer.reason);
      detail.set_field(answer.field);
      detail.set_found("that");
      detail.set_expected("this");
      context->AddTrailingMetadata(kErrorTrailer, detail.SerializeAsString());
    }
    return {answer.code, answer.code == grpc::StatusCode::OK ? "" : "refused"};
  }

 private:
  static Attempt Read(const grpc::ServerContext& context,
                      const v1::DropTensorsRequest& request) {
    const auto& metadata = context.client_metadata();
    const auto text = [&](const char* key) -> std::string {
      const auto found = metadata.find(key);
      if (found == metadata.end()) return "";
      return {found->second.data(), found->second.size()};
    };
    Attempt attempt{.call_id = text(kCallIdKey)};
    if (request.names_size() > 0) attempt.name = request.names(0);
    attempt.is_void = attempt.name == "void";
    for (const auto& [key, value] :
         {std::pair(kEpochKey, &attempt.epoch),
          std::pair(kSequenceKey, &attempt.sequence),
          std::pair(kAcknowledgedKey, &attempt.acknowledged),
          std::pair(kAfterKey, &attempt.after)}) {
      if (!absl::SimpleAtoi(text(key), value)) *value = -1;
    }
    return attempt;
  }

  Mutex mutex_;
  CondVar arrived_;
  Script script_ ABSL_GUARDED_BY(mutex_);
  std::vector<Attempt> attempts_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<v1::ConvGradSessions::Stub> stub_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace convgrad
