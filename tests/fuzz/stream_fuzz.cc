// Fuzzes convolutions by stream: a header, then frames in any order.
#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "proto/codec/stream_codec.h"
#include "server/rpc/convolutions/stream_input.h"
#include "tests/fuzz/inputs.pb.h"
#include "tests/fuzz/message_fuzzer.h"
#include "tests/fuzz/require.h"

namespace convgrad::fuzz {
namespace {

// Records the bytes that have come, one by one; only for small operands.
class Model {
 public:
  explicit Model(const ConvOperation& operation,
                 const StreamInput::Kept& is_kept) {
    for (Operand which : kAllOperands) {
      const auto& operand = operation.operand(which);
      if (!operand || is_kept[PositionOf(which)]) continue;
      came_[PositionOf(which)].resize(
          static_cast<size_t>(std::min(*ByteSize(*operand), kMostBytes)));
    }
  }

  void Take(const OperandPiece& piece) {
    std::vector<bool>& came = came_[PositionOf(piece.which)];
    const auto size = static_cast<int64_t>(came.size());
    for (int64_t at = piece.bytes.begin; at < std::min(piece.bytes.end, size);
         ++at) {
      Require(!came[static_cast<size_t>(at)], "a byte comes once");
      came[static_cast<size_t>(at)] = true;
    }
  }

  bool IsComplete() const {
    return std::all_of(came_.begin(), came_.end(), [](const auto& came) {
      return std::find(came.begin(), came.end(), false) == came.end();
    });
  }

 private:
  static constexpr int64_t kMostBytes = 1 << 14;

  std::array<std::vector<bool>, kOperandCount> came_;
};

StreamInput::Kept KeptOf(const Stream& input) {
  StreamInput::Kept kept = {};
  for (const int number : input.kept()) {
    const auto which = DecodeOperand(static_cast<v1::Operand>(number));
    if (which) kept[PositionOf(*which)] = true;
  }
  return kept;
}

void TakeFrames(const Stream& input, const ConvOperation& operation,
                const BatchSlices& slices) {
  const StreamInput::Kept kept = KeptOf(input);
  StreamInput stream(slices, kept);
  Model model(operation, kept);
  std::array<int64_t, kOperandCount> ends = {};
  for (const Stream::Frame& frame : input.frames()) {
    v1::ConvStreamRequest message = frame.message();
    const auto which = DecodeOperand(message.frame().which());
    if (frame.follows() && which) {
      message.mutable_frame()->set_byte_offset(ends[PositionOf(*which)]);
    }
    const auto piece = DecodeFrame(message, operation, {frame.payload_bytes()});
    if (!piece.ok()) {
      RequireRefusal(piece.status());
      continue;
    }
    const auto slice = stream.Accept(*piece);
    if (!slice.ok()) {
      RequireRefusal(slice.status());
      continue;
    }
    Require(*slice < slices.count(), "a slice is one of the stream's");
    Require(stream.first_incomplete() <= slices.count(), "the first gap, too");
    model.Take(*piece);
    ends[PositionOf(piece->which)] = piece->bytes.end;
  }
  if (stream.CheckComplete().ok()) {
    Require(model.IsComplete(), "a complete stream has every byte");
  }
}

}  // namespace

std::unique_ptr<google::protobuf::Message> NewInput() {
  return std::make_unique<Stream>();
}

absl::Span<const absl::string_view> Words() { return {}; }

void Try(const google::protobuf::Message& message) {
  const auto& input = static_cast<const Stream&>(message);
  const Direction direction =
      input.is_backward() ? Direction::kBackward : Direction::kForward;
  const auto opening = DecodeOpening(input.opening(), direction, {});
  if (!opening.ok()) return RequireRefusal(opening.status());
  if (!opening->decoded.support.ok()) return;
  auto operation = std::make_shared<ConvOperation>(opening->decoded.operation);
  DropUnneeded(operation.get());
  const BatchSlices slices = StreamSlices(operation, opening->slice_items);
  Require(slices.count() >= 1 && slices.items() >= 1, "there is a slice");
  for (const int64_t at : {int64_t{0}, slices.count() - 1}) {
    Require(slices.SliceOperation(at)->flops() >= 0, "a slice is computed");
    for (const TensorUse& use : operation->OperandUses()) {
      if (use.tensor == nullptr || !use.has_batch) continue;
      const ByteRange range = slices.RangeOf(*use.tensor, at);
      Require(range.begin >= 0 && range.begin <= range.end &&
                  range.end <= *ByteSize(*use.tensor),
              "a slice lies in its tensor");
    }
  }
  TakeFrames(input, *operation, slices);
}

}  // namespace convgrad::fuzz
