// `SessionClient` is a client of one session that uses only the generated
// stubs. It sets the metadata of changes itself, so a test can make them
// invalid.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "convgrad/v1/service.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/call_metadata.h"
#include "tests/end_to_end/peers/test_server.h"

namespace convgrad {

// Returns a tensor of these dims without the place of its bytes.
inline v1::Tensor TensorOf(v1::Layout layout, const std::vector<int64_t>& dims,
                           v1::DataType dtype = v1::DATA_TYPE_F32) {
  v1::Tensor tensor;
  tensor.set_dtype(dtype);
  tensor.set_layout(layout);
  for (int64_t extent : dims) tensor.add_dims(extent);
  return tensor;
}

// The metadata of a change.
struct ChangeMetadata {
  std::string session;
  int64_t epoch = 1;
  int64_t sequence = 0;
  std::string call_id = "";
  int64_t acknowledged = 0;
};

// Returns 16 bytes that differ from those of all other calls of this process.
inline std::string NewCallId() {
  static std::atomic<int64_t> last{0};
  std::string id = std::to_string(++last);
  return std::string(16 - id.size(), '0') + id;
}

inline void AddTo(grpc::ClientContext* context, const ChangeMetadata& change) {
  context->AddMetadata(kSessionKey, change.session);
  if (change.sequence == 0) return;
  context->AddMetadata(kEpochKey, std::to_string(change.epoch));
  context->AddMetadata(kSequenceKey, std::to_string(change.sequence));
  context->AddMetadata(kCallIdKey, change.call_id);
  context->AddMetadata(kAcknowledgedKey, std::to_string(change.acknowledged));
}

// Returns the trailer kNumberTrailer; -1 if there is none.
inline int64_t NumberOf(const grpc::ClientContext& context) {
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find(kNumberTrailer);
  int64_t number = -1;
  if (found != trailers.end()) {
    EXPECT_TRUE(absl::SimpleAtoi(
        absl::string_view(found->second.data(), found->second.size()),
        &number));
  }
  return number;
}

// Returns the trailer kDurableNumberTrailer; -1 if there is none.
inline int64_t DurableNumberOf(const grpc::ClientContext& context) {
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find(kDurableNumberTrailer);
  int64_t number = -1;
  if (found != trailers.end()) {
    EXPECT_TRUE(absl::SimpleAtoi(
        absl::string_view(found->second.data(), found->second.size()),
        &number));
  }
  return number;
}

// The reply to a call of a session.
template <typename Response>
struct SessionReply {
  grpc::Status status;
  Response response;
  Trailers trailers;
  int64_t number = -1;
  int64_t durable_number = -1;
};

class SessionClient {
 public:
  // Opens a session.
  explicit SessionClient(const std::shared_ptr<grpc::Channel>& channel,
                         const v1::OpenSessionRequest& open = {})
      : sessions_(v1::ConvGradSessions::NewStub(channel)),
        conv_(v1::ConvGrad::NewStub(channel)) {
    v1::OpenSessionRequest request = open;
    if (request.open_id().empty()) request.set_open_id(NewCallId());
    grpc::ClientContext context;
    v1::SessionResponse response;
    const grpc::Status status =
        sessions_->OpenSession(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    id_ = response.session_id();
  }

  // Continues a session that exists.
  SessionClient(const std::shared_ptr<grpc::Channel>& channel,
                const v1::SessionResponse& session)
      : sessions_(v1::ConvGradSessions::NewStub(channel)),
        conv_(v1::ConvGrad::NewStub(channel)),
        id_(session.session_id()),
        epoch_(session.epoch()),
        number_(session.number()) {}

  const std::string& id() const { return id_; }
  int64_t epoch() const { return epoch_; }
  int64_t number() const { return number_; }
  v1::ConvGradSessions::Stub& stub() { return *sessions_; }
  v1::ConvGrad::Stub& conv() { return *conv_; }

  // Call these when a change was made by other means.
  void Committed() { ++number_; }
  void Failed() { ++epoch_; }

  // Returns the metadata of the next change.
  ChangeMetadata Next() const {
    return {id_, epoch_, number_ + 1, NewCallId(), number_};
  }

  // Calls `method` of `stub`, as a change, or as a read if `change` has no
  // number.
  template <typename Stub, typename Request, typename Response>
  static SessionReply<Response> Call(
      Stub* stub,
      grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                   Response*),
      const Request& request, const ChangeMetadata& change) {
    grpc::ClientContext context;
    AddTo(&context, change);
    context.AddMetadata(kRequestBytesKey,
                        std::to_string(request.ByteSizeLong()));
    SessionReply<Response> reply;
    reply.status = (stub->*method)(&context, request, &reply.response);
    reply.trailers = TrailersOf(context);
    reply.number = NumberOf(context);
    reply.durable_number = DurableNumberOf(context);
    return reply;
  }

  // Makes the next change. If it fails, continues in the next epoch.
  template <typename Stub, typename Request, typename Response>
  SessionReply<Response> Change(
      Stub* stub,
      grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                   Response*),
      const Request& request) {
    SessionReply<Response> reply = Call(stub, method, request, Next());
    if (reply.status.ok()) {
      EXPECT_EQ(reply.number, number_ + 1);
      ++number_;
    } else {
      ++epoch_;
    }
    return reply;
  }

  SessionReply<v1::PutTensorsResponse> Put(
      const v1::PutTensorsRequest& request) {
    return Change<v1::ConvGradSessions::Stub>(
        sessions_.get(), &v1::ConvGradSessions::Stub::PutTensors, request);
  }
  SessionReply<v1::PutTensorsResponse> Put(const std::string& name,
                                           const v1::Tensor& tensor,
                                           const std::string& bytes) {
    return Put(PutOf(name, tensor, bytes));
  }
  SessionReply<v1::ConvForwardResponse> Forward(
      const v1::ConvForwardRequest& request) {
    return Change<v1::ConvGrad::Stub>(
        conv_.get(), &v1::ConvGrad::Stub::ConvForward, request);
  }
  SessionReply<v1::ConvBackwardResponse> Backward(
      const v1::ConvBackwardRequest& request) {
    return Change<v1::ConvGrad::Stub>(
        conv_.get(), &v1::ConvGrad::Stub::ConvBackward, request);
  }
  SessionReply<v1::DropTensorsResponse> Drop(const std::string& name) {
    v1::DropTensorsRequest request;
    request.add_names(name);
    return Change<v1::ConvGradSessions::Stub>(
        sessions_.get(), &v1::ConvGradSessions::Stub::DropTensors, request);
  }
  // Gets tensors as a read.
  SessionReply<v1::GetTensorsResponse> Get(
      const v1::GetTensorsRequest& request) {
    return Call<v1::ConvGradSessions::Stub>(
        sessions_.get(), &v1::ConvGradSessions::Stub::GetTensors, request,
        {id_});
  }
  SessionReply<v1::GetTensorsResponse> Get(const std::string& name) {
    v1::GetTensorsRequest request;
    request.add_tensors()->set_name(name);
    return Get(request);
  }
  SessionReply<v1::ListTensorsResponse> List() {
    return Call<v1::ConvGradSessions::Stub>(
        sessions_.get(), &v1::ConvGradSessions::Stub::ListTensors,
        v1::ListTensorsRequest(), {id_});
  }

  static v1::PutTensorsRequest PutOf(const std::string& name,
                                     const v1::Tensor& tensor,
                                     const std::string& bytes) {
    v1::PutTensorsRequest request;
    v1::NamedPut* put = request.add_tensors();
    put->set_name(name);
    *put->mutable_tensor() = tensor;
    put->mutable_tensor()->mutable_inline_()->set_payload_index(0);
    request.add_payloads(bytes);
    return request;
  }

 private:
  const std::unique_ptr<v1::ConvGradSessions::Stub> sessions_;
  const std::unique_ptr<v1::ConvGrad::Stub> conv_;
  std::string id_;
  int64_t epoch_ = 1;
  int64_t number_ = 0;
};

}  // namespace convgrad
