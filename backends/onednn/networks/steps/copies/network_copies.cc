// Implements concat.
#include <string>
#include <vector>

#include "backends/onednn/execution/onednn_library_step.h"
#include "backends/onednn/networks/schedule/network_groups.h"
#include "backends/onednn/networks/steps/network_operator.h"

namespace convgrad::onednn {
namespace {

constexpr absl::string_view kKind = "concat";

// Returns `extent` indices of the axis from `first` on. If they reach the last
// channel of an image, they include its padding.
Elements SliceOf(const NetworkTensor& tensor, size_t index, int64_t first,
                 int64_t extent) {
  Elements slice = ElementsOf(tensor);
  PhysicalAxis& axis = slice.layout.axes[index];
  axis.extent = extent;
  if (axis.block == 0) {
    slice.location.byte_offset = first * axis.stride * ByteSizeOf(slice.dtype);
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

  void Forward(NetworkBuilder* builder) override {
    const NetworkTensor y = builder->AddValue(step_.result);
    int64_t first = 0;
    for (const std::string& operand : step_.operands) {
      const int64_t extent = builder->Like(operand).dims[axis_];
      if (y.form == Form::kRows) {
        AddRows(builder->ViewOf(operand), y, first, builder);
      } else {
        const NetworkTensor x = builder->Value(operand, y.form);
        AddReorder(SliceOf(x, axis_, 0, extent),
                   SliceOf(y, axis_, first, extent), builder, kKind);
      }
      first += extent;
    }
  }

  void Backward(NetworkBuilder* builder) override {
    const NetworkTensor dy = builder->GradientOf(step_.result);
    int64_t first = 0;
    for (const std::string& operand : step_.operands) {
      const NetworkTensor dx = builder->NewGradient(operand, dy.form);
      const int64_t extent = dx.dims[axis_];
      AddReorder(SliceOf(dy, axis_, first, extent),
                 SliceOf(dx, axis_, 0, extent), builder, kKind);
      first += extent;
    }
  }

 private:
  void AddRows(const RowsView& view, const NetworkTensor& y, int64_t first,
               NetworkBuilder* builder) const {
    const Dims strides = RowMajorStrides(y.dims);
    const Location all = y.buffer;
    AddCopyOf(view, all.At(first * strides[axis_] * ByteSizeOf(y.blocks.dtype)),
              strides, kKind, builder);
  }

  const ProgramStep& step_;
  const size_t axis_;
};

}  // namespace

std::vector<NetworkOperator> NetworkCopies() {
  return {{Operator::kConcat, &MakeOfStep<Concat>}};
}

}  // namespace convgrad::onednn
