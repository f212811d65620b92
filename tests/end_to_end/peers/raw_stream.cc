#include "tests/end_to_end/peers/raw_stream.h"

#include "absl/time/clock.h"
#include "proto/codec/stream_codec.h"
#include "tests/conformance/operation_spec.h"

namespace convgrad {

RawStream::RawStream(v1::ConvGrad::Stub& stub, absl::Duration timeout) {
  context_.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  stream_ = stub.ConvBackwardStream(&context_);
}

StreamOutcome RawStream::Finish() {
  stream_->WritesDone();
  return AwaitEnd();
}

StreamOutcome RawStream::AwaitEnd() {
  StreamOutcome outcome;
  v1::ConvStreamResponse message;
  while (stream_->Read(&message)) {
    outcome.frames += message.has_frame();
    outcome.ended |= message.has_end();
  }
  outcome.status = stream_->Finish();
  outcome.trailers = TrailersOf(context_);
  return outcome;
}

v1::ConvStreamRequest TestHeader() {
  const ConvOperation operation = testing_support::MakeOperation(
      {.problem = *Parse("conv2d_n6_c2_o3_i5_k3"),
       .results = {Result::kGradInput, Result::kGradWeight,
                   Result::kGradBias}});
  return EncodeOpening(operation, {}, 2);
}

v1::ConvStreamRequest TestFrame(v1::Operand which, int64_t byte_offset,
                                int64_t bytes) {
  v1::ConvStreamRequest message;
  message.mutable_frame()->set_which(which);
  message.mutable_frame()->set_byte_offset(byte_offset);
  message.add_payloads(std::string(bytes, '\0'));
  return message;
}

std::vector<v1::ConvStreamRequest> TestFrames() {
  std::vector<v1::ConvStreamRequest> frames = {
      TestFrame(v1::OPERAND_WEIGHT, 0, 216)};
  for (int64_t slice = 0; slice < 3; ++slice) {
    frames.push_back(TestFrame(v1::OPERAND_INPUT, slice * 400, 400));
    frames.push_back(TestFrame(v1::OPERAND_GRAD_OUTPUT, slice * 216, 216));
  }
  return frames;
}

StreamOutcome SendAll(v1::ConvGrad::Stub& stub,
                      const std::vector<v1::ConvStreamRequest>& messages) {
  RawStream stream(stub);
  for (const v1::ConvStreamRequest& message : messages) {
    if (!stream.Write(message)) break;
  }
  return stream.Finish();
}

}  // namespace convgrad
