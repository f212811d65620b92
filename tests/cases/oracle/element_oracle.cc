#include "tests/cases/oracle/element_oracle.h"

#include <algorithm>
#include <numeric>

#include "tests/conformance/tensor_fill.h"

namespace convgrad::testing_support {
namespace {

// `count` pairs of offsets into two tensors, evenly spaced.
struct Progression {
  int64_t count = 1;
  int64_t a = 0, b = 0;
  int64_t a_step = 0, b_step = 0;
};

// Sums of products over the channels (or images) and three axes.
using Loops = std::array<Progression, 4>;

ElementSum SumProducts(const FilledOperand& a, const FilledOperand& b,
                       const Loops& loops) {
  ElementSum sum;
  const uint16_t* ai = a.indices->data();
  const uint16_t* bi = b.indices->data();
  const float* at = a.table->values();
  const float* bt = b.table->values();
  const auto& [l0, l1, l2, l3] = loops;
  for (int64_t i = 0; i < l0.count; ++i) {
    for (int64_t j = 0; j < l1.count; ++j) {
      for (int64_t k = 0; k < l2.count; ++k) {
        int64_t p = l0.a + i * l0.a_step + l1.a + j * l1.a_step + l2.a +
                    k * l2.a_step + l3.a;
        int64_t q = l0.b + i * l0.b_step + l1.b + j * l1.b_step + l2.b +
                    k * l2.b_step + l3.b;
        for (int64_t l = 0; l < l3.count; ++l) {
          const double product = static_cast<double>(at[ai[p]]) * bt[bi[q]];
          sum.value += product;
          sum.squares += product * product;
          p += l3.a_step;
          q += l3.b_step;
        }
      }
    }
  }
  return sum;
}

// The ordinary convolution of a problem: W(o, c, k) connects E(n, o, p) to D(n,
// c, p * stride + k * dilation - pad). For a transposed problem, E is the
// input's side.
struct Roles {
  explicit Roles(const ConvProblem& problem);

  int64_t d_channels, e_channels, groups;
  std::array<SpatialAxis, 3> axes;
  Dims d_extent = Dims(3, 1), e_extent = Dims(3, 1);
  // The distance between neighbours on each axis.
  Dims d_stride = Dims(3, 1), e_stride = Dims(3, 1), w_stride = Dims(3, 1);
  int64_t d_plane, e_plane, taps;

  int64_t d_per_group() const { return d_channels / groups; }
  int64_t e_per_group() const { return e_channels / groups; }
};

Roles::Roles(const ConvProblem& problem) : groups(problem.groups) {
  d_channels = problem.transposed ? problem.out_channels : problem.in_channels;
  e_channels = problem.transposed ? problem.in_channels : problem.out_channels;
  const size_t rank = problem.axes.size();
  for (size_t i = 0; i < rank; ++i) {
    const SpatialAxis& axis = problem.axes[i];
    const size_t at = 3 - rank + i;
    axes[at] = axis;
    d_extent[at] = problem.transposed ? axis.out : axis.in;
    e_extent[at] = problem.transposed ? axis.in : axis.out;
  }
  for (size_t i = 2; i-- > 0;) {
    d_stride[i] = d_stride[i + 1] * d_extent[i + 1];
    e_stride[i] = e_stride[i + 1] * e_extent[i + 1];
    w_stride[i] = w_stride[i + 1] * axes[i + 1].kernel;
  }
  d_plane = d_stride[0] * d_extent[0];
  e_plane = e_stride[0] * e_extent[0];
  taps = w_stride[0] * axes[0].kernel;
}

int64_t FloorDivide(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && a < 0 ? 1 : 0);
}
int64_t CeilDivide(int64_t a, int64_t b) { return -FloorDivide(-a, b); }

// Returns D (a) and W (b) of output position p on one axis.
Progression TapsOf(const Roles& roles, size_t i, int64_t p) {
  const SpatialAxis& axis = roles.axes[i];
  const int64_t start = p * axis.stride - axis.pad_begin;
  const int64_t first = std::max<int64_t>(0, CeilDivide(-start, axis.dilation));
  const int64_t last =
      std::min(axis.kernel - 1,
               FloorDivide(roles.d_extent[i] - 1 - start, axis.dilation));
  return {std::max<int64_t>(0, last - first + 1),
          (start + first * axis.dilation) * roles.d_stride[i],
          first * roles.w_stride[i], axis.dilation * roles.d_stride[i],
          roles.w_stride[i]};
}

// Returns E (a) and W (b) that contribute to position q of D on one axis.
Progression MeetingsOf(const Roles& roles, size_t i, int64_t q) {
  const SpatialAxis& axis = roles.axes[i];
  Progression found{0, 0, 0, 0, 0};
  int64_t previous_p = 0, previous_k = 0;
  for (int64_t k = 0; k < axis.kernel; ++k) {
    const int64_t reach = q + axis.pad_begin - k * axis.dilation;
    if (reach < 0) break;
    const int64_t p = reach / axis.stride;
    if (reach % axis.stride != 0 || p >= roles.e_extent[i]) continue;
    if (found.count == 0) {
      found.a = p * roles.e_stride[i];
      found.b = k * roles.w_stride[i];
    } else if (found.count == 1) {
      found.a_step = (p - previous_p) * roles.e_stride[i];
      found.b_step = (k - previous_k) * roles.w_stride[i];
    }
    previous_p = p;
    previous_k = k;
    ++found.count;
  }
  return found;
}

// Returns E (a) and D (b) that tap k connects on one axis.
Progression PositionsOf(const Roles& roles, size_t i, int64_t k) {
  const SpatialAxis& axis = roles.axes[i];
  const int64_t start = k * axis.dilation - axis.pad_begin;
  const int64_t first = std::max<int64_t>(0, CeilDivide(-start, axis.stride));
  const int64_t last =
      std::min(roles.e_extent[i] - 1,
               FloorDivide(roles.d_extent[i] - 1 - start, axis.stride));
  return {std::max<int64_t>(0, last - first + 1), first * roles.e_stride[i],
          (start + first * axis.stride) * roles.d_stride[i], roles.e_stride[i],
          axis.stride * roles.d_stride[i]};
}

std::array<int64_t, 3> SpatialOf(absl::Span<const int64_t> index) {
  std::array<int64_t, 3> spatial = {0, 0, 0};
  for (size_t i = 2; i < index.size(); ++i) {
    spatial[3 - index.size() + i] = index[i];
  }
  return spatial;
}

ElementSum ESide(const Roles& roles, absl::Span<const int64_t> index,
                 const FilledOperand& d, const FilledOperand& w) {
  const auto at = SpatialOf(index);
  const int64_t o = index[1], per_group = roles.d_per_group();
  const int64_t c = o / roles.e_per_group() * per_group;
  return SumProducts(
      d, w,
      {Progression{per_group, (index[0] * roles.d_channels + c) * roles.d_plane,
                   o * per_group * roles.taps, roles.d_plane, roles.taps},
       TapsOf(roles, 0, at[0]), TapsOf(roles, 1, at[1]),
       TapsOf(roles, 2, at[2])});
}

ElementSum DSide(const Roles& roles, absl::Span<const int64_t> index,
                 const FilledOperand& e, const FilledOperand& w) {
  const auto at = SpatialOf(index);
  const int64_t c = index[1], per_group = roles.e_per_group();
  const int64_t o = c / roles.d_per_group() * per_group;
  const int64_t filter = roles.d_per_group() * roles.taps;
  return SumProducts(
      e, w,
      {Progression{per_group, (index[0] * roles.e_channels + o) * roles.e_plane,
                   o * filter + c % roles.d_per_group() * roles.taps,
                   roles.e_plane, filter},
       MeetingsOf(roles, 0, at[0]), MeetingsOf(roles, 1, at[1]),
       MeetingsOf(roles, 2, at[2])});
}

ElementSum WeightSide(const Roles& roles, int64_t batch,
                      absl::Span<const int64_t> index, const FilledOperand& e,
                      const FilledOperand& d) {
  const auto at = SpatialOf(index);
  const int64_t o = index[0];
  const int64_t c = o / roles.e_per_group() * roles.d_per_group() + index[1];
  return SumProducts(
      e, d,
      {Progression{batch, o * roles.e_plane, c * roles.d_plane,
                   roles.e_channels * roles.e_plane,
                   roles.d_channels * roles.d_plane},
       PositionsOf(roles, 0, at[0]), PositionsOf(roles, 1, at[1]),
       PositionsOf(roles, 2, at[2])});
}

ElementSum BiasSum(const ConvProblem& problem, int64_t channel,
                   const FilledOperand& g) {
  ElementSum sum;
  int64_t plane = 1;
  for (const SpatialAxis& axis : problem.axes) plane *= axis.out;
  for (int64_t n = 0; n < problem.batch; ++n) {
    const int64_t begin = (n * problem.out_channels + channel) * plane;
    for (int64_t i = begin; i < begin + plane; ++i) {
      sum.value += g.At(i);
      sum.squares += g.At(i) * g.At(i);
    }
  }
  return sum;
}

}  // namespace

ElementSum ElementOf(const ConvProblem& problem, Result which,
                     absl::Span<const int64_t> index,
                     const FilledOperands& operands) {
  const auto get = [&](Operand operand) -> const FilledOperand& {
    return operands[static_cast<size_t>(operand)];
  };
  const Roles roles(problem);
  const FilledOperand& weight = get(Operand::kWeight);
  const FilledOperand& x = get(Operand::kInput);
  const FilledOperand& g = get(Operand::kGradOutput);
  switch (which) {
    case Result::kOutput: {
      ElementSum sum = problem.transposed ? DSide(roles, index, x, weight)
                                          : ESide(roles, index, x, weight);
      if (problem.bias) {
        const double bias = get(Operand::kBias).At(index[1]);
        sum.value += bias;
        sum.squares += bias * bias;
      }
      return sum;
    }
    case Result::kGradInput:
      return problem.transposed ? ESide(roles, index, g, weight)
                                : DSide(roles, index, g, weight);
    case Result::kGradWeight:
      return problem.transposed ? WeightSide(roles, problem.batch, index, x, g)
                                : WeightSide(roles, problem.batch, index, g, x);
    case Result::kGradBias:
    case Result::kGradResidual:
      break;
  }
  return BiasSum(problem, index[0], g);
}

}  // namespace convgrad::testing_support
