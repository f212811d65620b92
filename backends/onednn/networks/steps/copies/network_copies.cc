// Implements concat.
#include <string>
#include <utility>
#include <vector>

#include "backends/kernels/copies/reorder.h"
#include "backends/onednn/networks/schedule/network_groups.h"
#include "backends/onednn/networks/steps/network_operator.h"

namespace convgrad::onednn {
namespace {

constexpr absl::string_view kKind = "concat";

// A part of a tensor along one axis.
struct AxisSlice {
  PhysicalLayout layout;
  int64_t byte_offset = 0;
};

// Returns `extent` indices of the axis from `first` on. If they reach the last
// channel of an image, they include its padding.
AxisSlice SliceOf(const NetworkTensor& tensor, size_t index, int64_t first,
                  int64_t extent) {
  AxisSlice slice = {PhysicalLayoutOf(tensor), 0};
  PhysicalAxis& axis = slice.layout.axes[index];
  axis.extent = extent;
  if (axis.block == 0) {
    slice.byte_offset = first * axis.stride * ByteSizeOf(tensor.blocks.dtype);
    return slice;
  }
  axis.first = first;
  const bool is_last = first + extent == tensor.blocks.channels;
  axis.padded = is_last ? tensor.blocks.padded_channels() - first : extent;
  return slice;
}

class Concat final : public NetworkGroup {
 public:
  Concat(const ProgramStep& step, const ProgramShapes& shapes)
      : step_(step), axis_(*StepDims(step, shapes).Axis("axis")) {}

  absl::Status Forward(NetworkBuilder* builder) override {
    const NetworkTensor y = builder->AddValue(step_.result);
    int64_t first = 0;
    for (const std::string& operand : step_.operands) {
      const int64_t extent = builder->Like(operand).dims[axis_];
      if (y.form == Form::kRows) {
        AddRows(builder->ViewOf(operand), y, first, builder);
      } else {
        const NetworkTensor x = builder->Value(operand, y.form);
        AddSliceCopy({x, SliceOf(x, axis_, 0, extent)},
                     {y, SliceOf(y, axis_, first, extent)}, builder);
      }
      first += extent;
    }
    return absl::OkStatus();
  }

  absl::Status Backward(NetworkBuilder* builder) override {
    const NetworkTensor dy = builder->GradientOf(step_.result);
    int64_t first = 0;
    for (const std::string& operand : step_.operands) {
      const NetworkTensor dx = builder->NewGradient(operand, dy.form);
      const int64_t extent = dx.dims[axis_];
      AddSliceCopy({dy, SliceOf(dy, axis_, first, extent)},
                   {dx, SliceOf(dx, axis_, 0, extent)}, builder);
      first += extent;
    }
    return absl::OkStatus();
  }

 private:
  using Side = std::pair<const NetworkTensor&, AxisSlice>;

  void AddRows(const RowsView& view, const NetworkTensor& y, int64_t first,
               NetworkBuilder* builder) const {
    const Dims strides = RowMajorStrides(y.dims);
    const Location all = y.buffer;
    AddCopyOf(view, all.At(first * strides[axis_] * ByteSizeOf(y.blocks.dtype)),
              strides, kKind, &builder->schedule());
  }

  static void AddSliceCopy(const Side& from, const Side& to,
                           NetworkBuilder* builder) {
    const DataType dtype = from.first.blocks.dtype;
    const auto reorder = std::make_shared<const Reorder>(
        Reorder::Make(from.second.layout, dtype, to.second.layout, dtype));
    const BufferId source = from.first.buffer, target = to.first.buffer;
    builder->schedule().Add(
        {.kind = kKind,
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
  const size_t axis_;
};

}  // namespace

std::vector<NetworkOperator> NetworkCopies() {
  return {{Operator::kConcat, &MakeOfStep<Concat>}};
}

}  // namespace convgrad::onednn
