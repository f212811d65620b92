// These functions send the output of a stream: frames of its results, and its
// end.
#include <memory>
#include <utility>
#include <vector>

#include "backends/core/steady_now.h"
#include "backends/kernels/operators/nonfinite.h"
#include "proto/codec/payload_message.h"
#include "server/rpc/calls/report.h"
#include "server/rpc/convolutions/stream_call.h"

namespace convgrad {

void StreamCall::Enqueue(const std::vector<SlicedTensors::ReadyResult>& ready,
                         const std::shared_ptr<const void>& owner) {
  for (const SlicedTensors::ReadyResult& result : ready) {
    if (result.range.size() > 0) outgoing_.push_back({result, owner});
  }
}

std::shared_ptr<const void> StreamCall::OwnerOf(int64_t slice) {
  const int64_t slot = slice % SlicedTensors::kSlots;
  slot_in_use_[slot] = true;
  const auto event = [this, slot] {
    PassTime();
    slot_in_use_[slot] = false;
    Continue();
  };
  const std::shared_ptr<ReservedBuffers>& results = tensors_.slot(slice);
  // gRPC may free the results while it holds its own locks, perhaps after the
  // call's end. So another thread runs the event, if the call still exists.
  return std::shared_ptr<const void>(
      results.get(),
      [this, event, strand = strand_, results](const void* /*results*/) {
        strand->IfOpen(
            [&] { services().defer([strand, event] { strand->Run(event); }); });
      });
}

void StreamCall::EnqueueTotals() {
  std::vector<SlicedTensors::ReadyResult> ready;
  const auto owner =
      tensors_.TakeTotals(services().memory, reservation(), &ready);
  Enqueue(ready, owner);
  std::vector<int64_t>& counts = total_.findings.nonfinite_counts;
  if (counts.empty()) return;
  for (const SlicedTensors::ReadyResult& result : ready) {
    // The sum is counted again, because its count doesn't follow from the
    // counts of the addends.
    const DataType dtype =
        operation_->results[result.position].descriptor.dtype;
    counts[result.position] = CountNonfinite(
        dtype, result.data, result.range.size() / ByteSizeOf(dtype));
  }
}

void StreamCall::Write() {
  if (in_flight_.write || outgoing_.empty()) return;
  const absl::Time start = SteadyNow();
  auto& [ready, owner] = outgoing_.front();
  const ByteRange bytes = FrameAt(ready.range, ready.range.begin);
  absl::StatusOr<grpc::ByteBuffer> frame = JoinMessage(
      EncodeFrame(operation_->results[ready.position].which, bytes.begin),
      {SliceOver(ready.data, bytes.size(), owner)});
  if (!frame.ok()) return Fail(frame.status());
  frame_.Swap(&*frame);
  ready.data += bytes.size();
  ready.range.begin = bytes.end;
  if (ready.range.size() == 0) outgoing_.pop_front();
  sample_.bytes_sent += bytes.size();
  sample_.times.encode.Add(start, SteadyNow());
  in_flight_.write = true;
  HandOver();
  StartWrite(&frame_);
}

void StreamCall::EndWell() {
  v1::ConvStreamResponse message;
  v1::StreamEnd* end = message.mutable_end();
  const std::vector<ResultRequest>& results = operation_->results;
  for (size_t i = 0; i < results.size(); ++i) {
    v1::NamedTensor* named = end->add_results();
    named->set_which(EncodeResult(results[i].which));
    *named->mutable_tensor() =
        kept_results_[i]
            ? session().Describe(results[i].descriptor, kept_results_[i]->name)
            : EncodeStreamTensor(results[i].descriptor);
  }
  sample_.times.total = SteadyNow() - arrival();
  EncodeReport(sample_, *operation_, total_, route_.predictions,
               end->mutable_report());
  Answer(JoinMessage(message, {}));
}

}  // namespace convgrad
