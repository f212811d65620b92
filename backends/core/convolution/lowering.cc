#include "backends/core/convolution/lowering.h"

#include <algorithm>

namespace convgrad {
namespace {

// Returns the mirrored convolution: input and output are exchanged.
ConvProblem Mirror(const ConvProblem& problem) {
  ConvProblem mirror = problem;
  mirror.transposed = false;
  std::swap(mirror.in_channels, mirror.out_channels);
  for (SpatialAxis& axis : mirror.axes) {
    std::swap(axis.in, axis.out);
    axis.output_padding = 0;  // now an unread tail
  }
  return mirror;
}

bool AnyAbove(int64_t limit, const Dims& values) {
  return std::any_of(values.begin(), values.end(),
                     [&](int64_t v) { return v > limit; });
}

}  // namespace

absl::string_view NameOf(Pass pass) {
  constexpr absl::string_view kNames[] = {"forward", "backward_data",
                                          "backward_weight"};
  return kNames[static_cast<size_t>(pass)];
}

Pass PassFor(const ConvProblem& problem, Result which) {
  if (which == Result::kGradWeight) return Pass::kBackwardWeight;
  const bool data_side = (which == Result::kGradInput) != problem.transposed;
  return data_side ? Pass::kBackwardData : Pass::kForward;
}

Role ResultOf(Pass pass) {
  if (pass == Pass::kForward) return Role::kOut;
  return pass == Pass::kBackwardData ? Role::kData : Role::kWeight;
}

Lowering::Lowering(const ConvProblem& problem, bool skips_unread)
    : lowered_(problem.transposed ? Mirror(problem) : problem),
      mirrored_(problem.transposed),
      linear_(problem.axes.empty()) {
  lowered_.bias.reset();
  lowered_.residual = lowered_.relu = false;
  if (linear_) {
    // (N, C) row-major is one image of width N in channels-last layout.
    lowered_.axes.resize(1);
    lowered_.axes[0].in = lowered_.axes[0].out = lowered_.batch;
    lowered_.batch = 1;
  }
  const size_t rank = lowered_.axes.size();
  data_begin_ = data_cut_ = weight_begin_ = weight_cut_ = Dims(rank, 0);
  data_steps_ = Dims(rank, 1);
  for (size_t i = 0; i < rank; ++i) {
    LowerAxis(i);
    if (skips_unread) SkipUnread(i);
  }
}

bool Lowering::IsDead(size_t i, int64_t tap) const {
  const SpatialAxis& axis = whole_axes_[i];
  const int64_t shift = tap * axis.dilation - axis.pad_begin;
  // The first output position at which the tap isn't in the front padding.
  const int64_t first = shift >= 0 ? 0 : (-shift - 1) / axis.stride + 1;
  return first >= axis.out || first * axis.stride + shift >= axis.in;
}

void Lowering::LowerAxis(size_t i) {
  SpatialAxis& axis = lowered_.axes[i];
  axis.stride = MeaningfulStride(axis);
  whole_axes_.push_back(axis);
  int64_t first = 0;
  while (first < axis.kernel - 1 && IsDead(i, first)) ++first;
  int64_t last = axis.kernel - 1;
  while (last > first && IsDead(i, last)) --last;
  if (IsDead(i, first)) {
    // All windows read only padding: keep the kernel, so that the library
    // multiplies by the padding.
    first = 0;
    last = axis.kernel - 1;
  }
  for (int64_t tap = first; tap <= last; ++tap) {
    if (IsDead(i, tap)) has_dead_inner_taps_ = true;
  }
  weight_begin_[i] = first;
  weight_cut_[i] = axis.kernel - (last - first + 1);
  axis.kernel = last - first + 1;
  axis.pad_begin -= first * axis.dilation;
  if (axis.kernel == 1) axis.dilation = 1;  // the dilation has no effect
  if (axis.pad_begin < 0) {  // elements before the first tap are unread
    data_begin_[i] = -axis.pad_begin;
    axis.in -= data_begin_[i];
    axis.pad_begin = 0;
  }
  // The back padding that the last window reads. If negative, the tail is
  // unread; it is cut off only if another window would fit there.
  const int64_t reach =
      (axis.out - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1;
  const int64_t tail = axis.in + axis.pad_begin - reach;
  const int64_t cut = tail >= axis.stride ? tail : 0;
  axis.in -= cut;
  axis.pad_end = std::max<int64_t>(-tail, 0);
  data_cut_[i] = data_begin_[i] + cut;
}

void Lowering::SkipUnread(size_t i) {
  SpatialAxis& axis = lowered_.axes[i];
  if (axis.kernel > 1 || axis.pad_begin > 0 || axis.pad_end > 0 ||
      axis.in != axis.out * axis.stride) {
    return;
  }
  data_steps_[i] = axis.stride;
  axis.in = axis.out;
  axis.stride = 1;
}

StridedView Lowering::Activation(const TensorDescriptor& tensor) const {
  StridedView view{tensor.dtype, tensor.dims, Strides(tensor), 0};
  if (linear_) {
    view.dims = {1, tensor.dims[1], tensor.dims[0]};
    view.strides = {ElementCount(tensor), view.strides[1], view.strides[0]};
  }
  return view;
}

StridedView Lowering::Data(const TensorDescriptor& tensor) const {
  StridedView view = Activation(tensor);
  for (size_t i = 0; i < lowered_.axes.size(); ++i) {
    view.offset += data_begin_[i] * view.strides[i + 2];
    view.dims[i + 2] = (view.dims[i + 2] - data_cut_[i]) / data_steps_[i];
    view.strides[i + 2] *= data_steps_[i];
  }
  return view;
}

StridedView Lowering::Weight(const TensorDescriptor& tensor) const {
  StridedView view{tensor.dtype, tensor.dims, Strides(tensor), 0};
  if (linear_) {
    view.dims.push_back(1);
    view.strides.push_back(1);
  }
  for (size_t i = 0; i < lowered_.axes.size(); ++i) {
    view.dims[i + 2] -= weight_cut_[i];
    view.offset += weight_begin_[i] * view.strides[i + 2];
  }
  return view;
}

StridedView Lowering::View(Role role, const TensorDescriptor& tensor) const {
  if (role == Role::kOut) return Activation(tensor);
  return role == Role::kData ? Data(tensor) : Weight(tensor);
}

bool Lowering::Crops(Role role) const {
  if (role == Role::kWeight) return AnyAbove(0, weight_cut_);
  return role == Role::kData &&
         (AnyAbove(0, data_cut_) || AnyAbove(1, data_steps_));
}

}  // namespace convgrad
