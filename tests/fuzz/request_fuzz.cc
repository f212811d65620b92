// Fuzzes requests as messages, with payloads of any sizes, through their
// decoders.
#include "proto/codec/codec.h"
#include "tests/fuzz/decode_request.h"
#include "tests/fuzz/inputs.pb.h"
#include "tests/fuzz/message_fuzzer.h"

namespace convgrad::fuzz {

std::unique_ptr<google::protobuf::Message> NewInput() {
  return std::make_unique<Request>();
}

absl::Span<const absl::string_view> Words() { return {}; }

void Try(const google::protobuf::Message& message) {
  const auto& input = static_cast<const Request&>(message);
  const auto decoded =
      DecodeTensor(input.kept().tensor(),
                   input.kept().groups() == 0 ? 1 : input.kept().groups(), "");
  const TensorDescriptor kept = decoded.ok() ? *decoded : TensorDescriptor();
  switch (input.request_case()) {
    case Request::kForward:
      return DecodeRequest(input.forward(), input.payload_bytes(), kept);
    case Request::kBackward:
      return DecodeRequest(input.backward(), input.payload_bytes(), kept);
    case Request::kPut:
      return DecodeRequest(input.put(), input.payload_bytes(), kept);
    case Request::kPutStream:
      return DecodeRequest(input.put_stream(), input.payload_bytes(), kept);
    case Request::kGet:
      return DecodeRequest(input.get(), input.payload_bytes(), kept);
    case Request::kRun:
      return DecodeRequest(input.run(), input.payload_bytes(), kept);
    case Request::kBackwardProgram:
      return DecodeRequest(input.backward_program(), input.payload_bytes(),
                           kept);
    case Request::kUpdate:
      return DecodeRequest(input.update(), input.payload_bytes(), kept);
    case Request::REQUEST_NOT_SET:
      return;
  }
}

}  // namespace convgrad::fuzz
