// `NetworkClient` is a client of networks in a session that uses only the
// generated stubs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/codec/program_codec.h"
#include "tests/end_to_end/sessions/session_client.h"

namespace convgrad {

class NetworkClient {
 public:
  using Stub = v1::ConvGradNetworks::Stub;

  explicit NetworkClient(const std::shared_ptr<grpc::Channel>& channel,
                         const v1::OpenSessionRequest& open = {})
      : session_(channel, open),
        stub_(v1::ConvGradNetworks::NewStub(channel)) {}

  SessionClient& session() { return session_; }
  Stub& stub() { return *stub_; }

  // Puts a row-major tensor.
  void Put(const std::string& name, const std::vector<int64_t>& dims,
           const std::vector<float>& values) {
    const auto reply =
        session_.Put(name, TensorOf(v1::LAYOUT_NCX, dims), BytesOf(values));
    EXPECT_TRUE(reply.status.ok()) << reply.status.error_message();
  }
  std::vector<float> Get(const std::string& name) {
    const auto reply = session_.Get(name);
    EXPECT_TRUE(reply.status.ok()) << reply.status.error_message();
    return reply.status.ok() ? FloatsOf(reply.response.payloads(0))
                             : std::vector<float>();
  }

  SessionReply<v1::LoadProgramResponse> Load(const std::string& name,
                                             const std::string& text) {
    v1::LoadProgramRequest request;
    request.set_name(name);
    const absl::StatusOr<Program> program = ParseProgram(text);
    EXPECT_TRUE(program.ok()) << program.status();
    *request.mutable_program() = EncodeProgram(*program);
    return session_.Change<Stub>(stub_.get(), &Stub::LoadProgram, request);
  }
  SessionReply<v1::RunProgramResponse> Run(
      const v1::RunProgramRequest& request) {
    return session_.Change<Stub>(stub_.get(), &Stub::RunProgram, request);
  }
  // Runs the program as a read.
  SessionReply<v1::RunProgramResponse> Infer(
      const v1::RunProgramRequest& request) {
    return SessionClient::Call<Stub>(stub_.get(), &Stub::RunProgram, request,
                                     {session_.id()});
  }
  SessionReply<v1::BackwardProgramResponse> Backward(
      const v1::BackwardProgramRequest& request) {
    return session_.Change<Stub>(stub_.get(), &Stub::BackwardProgram, request);
  }
  SessionReply<v1::UpdateParametersResponse> Update(
      const v1::UpdateParametersRequest& request) {
    return session_.Change<Stub>(stub_.get(), &Stub::UpdateParameters, request);
  }

 private:
  SessionClient session_;
  const std::unique_ptr<Stub> stub_;
};

// Adds a tensor and its bytes to `values` of a request.
template <typename Request, typename Values>
void AddValue(const std::string& name, const std::vector<int64_t>& dims,
              const std::vector<float>& numbers, Values* values,
              Request* request) {
  v1::NamedValue* value = values->Add();
  value->set_name(name);
  *value->mutable_tensor() = TensorOf(v1::LAYOUT_NCX, dims);
  value->mutable_tensor()->mutable_inline_()->set_payload_index(
      request->payloads_size());
  request->add_payloads(BytesOf(numbers));
}

}  // namespace convgrad
