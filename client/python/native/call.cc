#include "client/python/native/call.h"

#include "absl/time/clock.h"

namespace convgrad {
namespace {

// Up to this size a copy is cheaper than the bookkeeping of a loan.
constexpr size_t kCopiedBytes = 4096;

}  // namespace

std::shared_ptr<RpcCall> RpcCall::Start(BytesStub* stub, CallRequest request) {
  std::shared_ptr<RpcCall> call(new RpcCall(std::move(request.on_over)));
  MutexLock lock(&call->context_mutex_);
  grpc::ClientContext* const context = call->context_.get();
  for (const auto& [key, value] : request.metadata) {
    context->AddMetadata(key, value);
  }
  if (request.timeout) {
    context->set_deadline(
        std::chrono::system_clock::now() +
        std::chrono::duration_cast<std::chrono::system_clock::duration>(
            *request.timeout));
  }
  const grpc::ByteBuffer message = call->Lend(request.parts);
  stub->UnaryCall(context, request.method, grpc::StubOptions(), &message,
                  &call->reply_, [started = call.get()](grpc::Status status) {
                    started->End(std::move(status));
                  });
  return call;
}

grpc::ByteBuffer RpcCall::Lend(const std::vector<std::string_view>& parts) {
  const std::shared_ptr<const void> loan = std::make_shared<char>();
  loan_ = loan;
  std::vector<grpc::Slice> slices;
  slices.reserve(parts.size());
  for (const std::string_view part : parts) {
    slices.push_back(part.size() <= kCopiedBytes
                         ? grpc::Slice(part.data(), part.size())
                         : SliceOver(part.data(), std::ssize(part), loan));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

void RpcCall::End(grpc::Status status) {
  MutexLock lock(&mutex_);
  status_ = std::move(status);
  if (on_over_) on_over_();
  is_over_ = true;
  // Under the lock, because a waiter may destroy the call as soon as it holds
  // the lock.
  ended_.NotifyAll();
}

bool RpcCall::Wait(absl::Duration at_most) {
  const absl::Time deadline = absl::Now() + at_most;
  MutexLock lock(&mutex_);
  while (!is_over_) {
    if (ended_.WaitUntil(&mutex_, deadline)) break;
  }
  return is_over_;
}

void RpcCall::Cancel() {
  MutexLock lock(&context_mutex_);
  if (context_ != nullptr) context_->TryCancel();
}

void RpcCall::Finish() {
  MutexLock lock(&context_mutex_);
  if (context_ == nullptr) return;
  for (const auto& [key, value] : context_->GetServerTrailingMetadata()) {
    trailing_metadata_.emplace_back(std::string(key.data(), key.size()),
                                    std::string(value.data(), value.size()));
  }
  context_.reset();
}

MessageParts RpcCall::TakeReply() {
  // Must outlive the references below (see PayloadView).
  grpc::ByteBuffer received;
  received.Swap(&reply_);
  absl::StatusOr<MessageParts> parts = SplitParts(received);
  if (parts.ok()) return *std::move(parts);
  grpc::Slice bytes;
  if (!received.DumpToSingleSlice(&bytes).ok()) return {};
  return {{reinterpret_cast<const char*>(bytes.begin()), bytes.size()}, {}};
}

}  // namespace convgrad
