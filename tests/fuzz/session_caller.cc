#include "tests/fuzz/session_caller.h"

#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "convgrad/v1/error.pb.h"
#include "grpcpp/generic/generic_stub.h"
#include "proto/call_metadata.h"

namespace convgrad::fuzz {
namespace {

// Counts the statuses of calls, as additional coverage for libFuzzer.
__attribute__((section("__libfuzzer_extra_counters"))) uint8_t ends[4096];

absl::string_view TrailerOf(const grpc::ClientContext& context,
                            const char* key) {
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find(key);
  if (found == trailers.end()) return "";
  return {found->second.data(), found->second.size()};
}

std::string TextOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string text;
  if (!buffer.Valid() || !buffer.Dump(&slices).ok()) return text;
  for (const grpc::Slice& slice : slices) {
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return text;
}

}  // namespace

struct PendingCall::State {
  explicit State(const std::shared_ptr<grpc::Channel>& channel)
      : stub(channel) {}

  std::string path;
  grpc::GenericStub stub;
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  grpc::ByteBuffer response;
  grpc::Status status;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> call;
};

PendingCall::PendingCall(const std::shared_ptr<grpc::Channel>& channel,
                         const std::string& path, const std::string& request,
                         const CallMetadata& metadata, int timeout_ms)
    : state_(std::make_unique<State>(channel)) {
  state_->path = path;
  AddTo(&state_->context, metadata, timeout_ms);
  state_->context.AddMetadata(kRequestBytesKey, absl::StrCat(request.size()));
  const grpc::Slice slice(request);
  state_->call = state_->stub.PrepareUnaryCall(
      &state_->context, path, grpc::ByteBuffer(&slice, 1), &state_->queue);
  state_->call->StartCall();
  state_->call->Finish(&state_->response, &state_->status, state_.get());
}

PendingCall::~PendingCall() = default;

Reply PendingCall::Await() {
  void* tag;
  bool ok;
  state_->queue.Next(&tag, &ok);
  return ReplyOf(state_->path, state_->context, state_->status,
                 TextOf(state_->response));
}

void AddTo(grpc::ClientContext* context, const CallMetadata& metadata,
           int timeout_ms) {
  context->set_deadline(std::chrono::system_clock::now() +
                        std::chrono::milliseconds(timeout_ms));
  if (!metadata.session.empty()) {
    context->AddMetadata(kSessionKey, metadata.session);
  }
  if (metadata.sequence == 0) return;
  context->AddMetadata(kEpochKey, absl::StrCat(metadata.epoch));
  context->AddMetadata(kSequenceKey, absl::StrCat(metadata.sequence));
  context->AddMetadata(kCallIdKey, metadata.call_id);
  context->AddMetadata(kAcknowledgedKey, absl::StrCat(metadata.acknowledged));
}

Reply ReplyOf(const std::string& path, const grpc::ClientContext& context,
              const grpc::Status& status, std::string response) {
  v1::ErrorDetail detail;
  detail.ParseFromString(std::string(TrailerOf(context, kErrorTrailer)));
  const std::string end = absl::StrCat(path, " ", status.error_code(), " ",
                                       detail.reason(), " ", detail.field());
  ++ends[std::hash<std::string>()(end) % std::size(ends)];
  Reply reply{status, std::move(response)};
  const absl::string_view number = TrailerOf(context, kNumberTrailer);
  if (!absl::SimpleAtoi(number, &reply.number)) reply.number = -1;
  return reply;
}

}  // namespace convgrad::fuzz
