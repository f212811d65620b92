// What only moves elements: concat and flatten.
#include <string>
#include <utility>
#include <vector>

#include "backends/kernels/copies/reorder.h"
#include "backends/onednn/networks/schedule/network_groups.h"
#include "backends/onednn/networks/steps/network_operator.h"

namespace convgrad::onednn {
namespace {

// Whose bytes are the same before and after where each image has one position
// and no padding.
class Flatten final : public NetworkGroup {
 public:
  explicit Flatten(const ProgramStep& step) : step_(step) {}

  absl::Status Forward(NetworkBuilder* builder) override {
    const NetworkTensor x = builder->Value(step_.operands[0]);
    rows_ = {x.blocks.dtype, Layout::kNCX, x.dims, 0, 1};
    keeps_bytes_ = LiesAlike(rows_, x) ||
                   (x.blocks.spatial == 1 &&
                    x.blocks.padded_channels() == x.blocks.channels);
    if (keeps_bytes_) {
      builder->AddValue(step_.result, x.buffer);
    } else {
      AddExport(x, builder->AddValue(step_.result).buffer, rows_,
                &builder->schedule());
    }
    return absl::OkStatus();
  }

  absl::Status Backward(NetworkBuilder* builder) override {
    const BufferId dy = builder->GradientOf(step_.result);
    if (dy == kNoBuffer) return absl::OkStatus();
    if (keeps_bytes_) {
      builder->AddGradient(step_.operands[0], dy);
      return absl::OkStatus();
    }
    NetworkTensor dx = builder->Like(step_.operands[0]);
    dx.buffer = builder->NewGradient(step_.operands[0]);
    AddImport(dy, rows_, dx, &builder->schedule());
    return absl::OkStatus();
  }

 private:
  const ProgramStep& step_;
  TensorDescriptor rows_;
  bool keeps_bytes_ = false;
};

// Some channels of a tensor.
struct ChannelSlice {
  PhysicalLayout layout;
  int64_t byte_offset = 0;
};

// Returns `channels` channels from `first` on. Up to the tensor's last channel
// they have its padding, too.
ChannelSlice SliceOf(const NetworkTensor& tensor, int64_t first,
                     int64_t channels) {
  ChannelSlice slice = {PhysicalLayoutOf(tensor), 0};
  PhysicalAxis& axis = slice.layout.axes[1];
  axis.extent = channels;
  if (axis.block == 0) {
    slice.byte_offset = first * axis.stride * ByteSizeOf(tensor.blocks.dtype);
    return slice;
  }
  axis.first = first;
  const bool is_last = first + channels == tensor.blocks.channels;
  axis.padded = is_last ? tensor.blocks.padded_channels() - first : channels;
  return slice;
}

class Concat final : public NetworkGroup {
 public:
  explicit Concat(const ProgramStep& step) : step_(step) {}

  absl::Status Forward(NetworkBuilder* builder) override {
    const NetworkTensor y = builder->AddValue(step_.result);
    int64_t first = 0;
    for (const std::string& operand : step_.operands) {
      const NetworkTensor x = builder->Value(operand);
      const int64_t channels = x.blocks.channels;
      AddSliceCopy({x, SliceOf(x, 0, channels)},
                   {y, SliceOf(y, first, channels)}, builder);
      first += channels;
    }
    return absl::OkStatus();
  }

  absl::Status Backward(NetworkBuilder* builder) override {
    NetworkTensor dy = builder->Like(step_.result);
    dy.buffer = builder->GradientOf(step_.result);
    if (dy.buffer == kNoBuffer) return absl::OkStatus();
    int64_t first = 0;
    for (const std::string& operand : step_.operands) {
      NetworkTensor dx = builder->Like(operand);
      dx.buffer = builder->NewGradient(operand);
      const int64_t channels = dx.blocks.channels;
      AddSliceCopy({dy, SliceOf(dy, first, channels)},
                   {dx, SliceOf(dx, 0, channels)}, builder);
      first += channels;
    }
    return absl::OkStatus();
  }

 private:
  using Side = std::pair<const NetworkTensor&, ChannelSlice>;

  static void AddSliceCopy(const Side& from, const Side& to,
                           NetworkBuilder* builder) {
    const DataType dtype = from.first.blocks.dtype;
    const auto reorder = std::make_shared<const Reorder>(
        Reorder::Make(from.second.layout, dtype, to.second.layout, dtype));
    const BufferId source = from.first.buffer, target = to.first.buffer;
    builder->schedule().Add(
        {.kind = "concat",
         .reads = {source},
         .writes = {target},
         .function = [=, source_offset = from.second.byte_offset,
                      target_offset =
                          to.second.byte_offset](const RunContext& context) {
           context.ForParts(reorder->part_count(), [&](int64_t part) {
             reorder->Run(context.At(source) + source_offset,
                          context.At(target) + target_offset, part, part + 1);
           });
         }});
  }

  const ProgramStep& step_;
};

}  // namespace

std::vector<NetworkOperator> NetworkCopies() {
  return {{Operator::kConcat, &MakeOfStep<Concat>},
          {Operator::kFlatten, &MakeOfStep<Flatten>}};
}

}  // namespace convgrad::onednn
