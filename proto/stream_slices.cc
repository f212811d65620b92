#include "proto/stream_slices.h"

#include <algorithm>
#include <utility>

#include "backends/core/checked_math.h"

namespace convgrad {
namespace {

constexpr int64_t kSliceBytes = int64_t{16} << 20;

// Returns `tensor` with a batch of `items`.
TensorDescriptor WithItems(TensorDescriptor tensor, int64_t items) {
  tensor.dims[0] = items;
  return tensor;
}

TensorDescriptor Addend(const TensorDescriptor& result, bool is_weight) {
  return {DataType::kF32, is_weight ? Layout::kOIX : Layout::kNCX, result.dims};
}

}  // namespace

ByteRange FrameAt(const ByteRange& range, int64_t begin) {
  return {begin, std::min(range.end, begin + kMaxFrameBytes)};
}

StreamSlices::StreamSlices(ConvOperation operation, int64_t slice_items)
    : operation_(std::move(operation)) {
  const int64_t batch = operation_.problem.batch;
  const int64_t most = std::max<int64_t>(batch, 1);
  items_ = std::min(slice_items == 0 ? DefaultItems() : slice_items, most);
  count_ = std::max<int64_t>(batch / items_ + (batch % items_ != 0), 1);
}

bool StreamSlices::IsCut(const TensorDescriptor& tensor, bool is_bias) const {
  if (!is_bias) return true;
  // An extent of 1 is a broadcast axis; where the batch is 1, either will do.
  const int64_t batch = operation_.problem.batch;
  return tensor.dims.size() == OutputDims(operation_.problem).size() &&
         tensor.dims[0] == batch && batch != 1;
}

bool StreamSlices::IsCut(Operand operand) const {
  return operand != Operand::kWeight &&
         IsCut(*operation_.operand(operand), operand == Operand::kBias);
}

bool StreamSlices::IsCut(Result result) const {
  return result != Result::kGradWeight &&
         IsCut(operation_.result(result)->descriptor,
               result == Result::kGradBias);
}

int64_t StreamSlices::DefaultItems() const {
  int64_t item_bytes = 0;
  int64_t sum_bytes = 0;
  const auto add = [](int64_t* sum, const TensorDescriptor& tensor) {
    *sum = SaturatingAdd(*sum, ByteSize(tensor).value_or(0));
  };
  for (Operand which : kAllOperands) {
    const auto& tensor = operation_.operand(which);
    if (tensor && IsCut(which)) add(&item_bytes, WithItems(*tensor, 1));
  }
  for (const ResultRequest& request : operation_.results) {
    if (IsCut(request.which)) {
      add(&item_bytes, WithItems(request.descriptor, 1));
    } else {
      add(&sum_bytes, Addend(request.descriptor, true));
    }
  }
  const int64_t target = std::max(kSliceBytes, sum_bytes);
  return std::max<int64_t>(target / std::max<int64_t>(item_bytes, 1), 1);
}

int64_t StreamSlices::ItemsOf(int64_t slice) const {
  return std::min(items_, operation_.problem.batch - slice * items_);
}

ByteRange StreamSlices::RangeOf(const TensorDescriptor& tensor,
                                int64_t slice) const {
  const int64_t item_bytes = ByteSize(WithItems(tensor, 1)).value_or(0);
  const int64_t begin = slice * items_ * item_bytes;
  return {begin, begin + ItemsOf(slice) * item_bytes};
}

ConvOperation StreamSlices::SliceOperation(int64_t slice) const {
  const int64_t items = ItemsOf(slice);
  ConvOperation part = operation_;
  part.problem.batch = items;
  for (Operand which : kAllOperands) {
    auto& tensor = part.operand(which);
    if (tensor && IsCut(which)) tensor = WithItems(*tensor, items);
  }
  for (ResultRequest& request : part.results) {
    if (IsCut(request.which)) {
      request.descriptor = WithItems(request.descriptor, items);
    } else {
      const bool is_weight = request.which == Result::kGradWeight;
      request.descriptor = Addend(request.descriptor, is_weight);
      request.scale = 1;
    }
  }
  if (part.problem.bias) {
    const bool forward = part.direction == Direction::kForward;
    part.problem.bias = forward
                            ? part.operand(Operand::kBias)->dims
                            : part.result(Result::kGradBias)->descriptor.dims;
  }
  return part;
}

}  // namespace convgrad
