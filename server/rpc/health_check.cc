#include "server/rpc/health_check.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "backends/core/mutex.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/support/byte_buffer.h"

namespace convgrad {
namespace {

// HealthCheckResponse{status: SERVING}. Debian doesn't package health.proto,
// and the server needs only this one message.
constexpr absl::string_view kServing("\x08\x01", 2);

std::string ReachableAddress(absl::string_view address) {
  absl::string_view port = address;
  if (absl::ConsumePrefix(&port, "0.0.0.0:")) {
    return absl::StrCat("127.0.0.1:", port);
  }
  if (absl::ConsumePrefix(&port, "[::]:")) return absl::StrCat("[::1]:", port);
  return std::string(address);
}

std::string TextOf(const grpc::ByteBuffer& buffer) {
  grpc::Slice slice;
  if (!buffer.DumpToSingleSlice(&slice).ok()) return "";
  return std::string(reinterpret_cast<const char*>(slice.begin()),
                     slice.size());
}

}  // namespace

absl::Status CheckHealth(const std::string& address, absl::Duration timeout) {
  grpc::GenericStub stub(grpc::CreateChannel(
      ReachableAddress(address), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  grpc::CompletionQueue queue;
  const grpc::ByteBuffer request(nullptr, 0);
  grpc::ByteBuffer response;
  grpc::Status status;
  const auto call = stub.PrepareUnaryCall(
      &context, "/grpc.health.v1.Health/Check", request, &queue);
  call->StartCall();
  call->Finish(&response, &status, &queue);
  void* tag;
  bool ok;
  queue.Next(&tag, &ok);
  if (!status.ok()) {
    return absl::UnavailableError(
        absl::StrCat(address, ": ", status.error_message()));
  }
  if (TextOf(response) != kServing) {
    return absl::UnavailableError(absl::StrCat(address, ": not serving"));
  }
  return absl::OkStatus();
}

}  // namespace convgrad
