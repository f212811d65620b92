#include "backends/reference/exact_convolution.h"

#include <cstdint>

#include "backends/reference/program_step_data.h"

namespace convgrad {
namespace {

// Positions [begin, end) of a TapAxis whose partner at one kernel tap exists:
// it isn't padding.
struct Range {
  int64_t begin;
  int64_t end;
};

// One spatial axis of the convolution's definition. Kernel tap k joins each
// position p with the partner p * stride + k * dilation - pad_begin. Positions
// are indices of the output and partners indices of the input. For a transposed
// convolution, positions are indices of the input and partners of the output.
struct TapAxis {
  int64_t positions;
  int64_t partners;
  SpatialAxis axis;
  std::vector<Range> inside;  // by tap

  int64_t PartnerOf(int64_t position, int64_t tap) const {
    return position * axis.stride + tap * axis.dilation - axis.pad_begin;
  }
};

TapAxis MakeTapAxis(const SpatialAxis& axis, bool transposed) {
  TapAxis taps;
  taps.axis = axis;
  taps.positions = transposed ? axis.in : axis.out;
  taps.partners = transposed ? axis.out : axis.in;
  for (int64_t k = 0; k < axis.kernel; ++k) {
    Range range{0, 0};
    while (range.begin < taps.positions && taps.PartnerOf(range.begin, k) < 0) {
      ++range.begin;
    }
    range.end = range.begin;
    while (range.end < taps.positions &&
           taps.PartnerOf(range.end, k) < taps.partners) {
      ++range.end;
    }
    taps.inside.push_back(range);
  }
  return taps;
}

// Offsets of one channel plane, or filter, in its tensor's logical order.
struct Planes {
  int64_t position;  // in the tensor that holds the positions
  int64_t partner;
  int64_t weight;
};

// Calls visit(position, partner, weight) with the offsets of every product of
// one pair of planes.
template <typename Visit>
void ForEachProductOfPlanes(const std::array<TapAxis, 3>& axes,
                            const Planes& planes, const Visit& visit) {
  const auto& [d, h, w] = axes;
  int64_t weight = planes.weight;
  for (int64_t kd = 0; kd < d.axis.kernel; ++kd) {
    for (int64_t kh = 0; kh < h.axis.kernel; ++kh) {
      for (int64_t kw = 0; kw < w.axis.kernel; ++kw, ++weight) {
        const Range inside = w.inside[kw];
        for (int64_t pd = d.inside[kd].begin; pd < d.inside[kd].end; ++pd) {
          const int64_t qd = d.PartnerOf(pd, kd);
          for (int64_t ph = h.inside[kh].begin; ph < h.inside[kh].end; ++ph) {
            const int64_t qh = h.PartnerOf(ph, kh);
            const int64_t position =
                planes.position + (pd * h.positions + ph) * w.positions;
            const int64_t partner =
                planes.partner + (qd * h.partners + qh) * w.partners;
            for (int64_t pw = inside.begin; pw < inside.end; ++pw) {
              visit(position + pw, partner + w.PartnerOf(pw, kw), weight);
            }
          }
        }
      }
    }
  }
}

// Calls visit(input, weight, output) with the offsets of every product that the
// convolution sums. All passes are sums over this one list, which is the
// definition of the operator and of its gradients.
template <typename Visit>
void ForEachProduct(const ConvProblem& problem, const Visit& visit) {
  // Extents of an empty batch have no limit.
  if (problem.batch == 0) return;
  std::array<SpatialAxis, 3> padded;  // missing leading axes have extent 1
  for (size_t i = 0; i < problem.axes.size(); ++i) {
    padded[3 - problem.axes.size() + i] = problem.axes[i];
  }
  std::array<TapAxis, 3> axes;
  int64_t taps = 1, in_plane = 1, out_plane = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    axes[i] = MakeTapAxis(padded[i], problem.transposed);
    taps *= padded[i].kernel;
    in_plane *= padded[i].in;
    out_plane *= padded[i].out;
  }
  const int64_t in_per_group = problem.in_channels / problem.groups;
  const int64_t out_per_group = problem.out_channels / problem.groups;
  for (int64_t n = 0; n < problem.batch; ++n) {
    for (int64_t o = 0; o < problem.out_channels; ++o) {
      const int64_t group = o / out_per_group;
      const int64_t output = (n * problem.out_channels + o) * out_plane;
      for (int64_t i = 0; i < in_per_group; ++i) {
        const int64_t c = group * in_per_group + i;
        const int64_t input = (n * problem.in_channels + c) * in_plane;
        if (problem.transposed) {
          const int64_t filter = c * out_per_group + o % out_per_group;
          ForEachProductOfPlanes(
              axes, {input, output, filter * taps},
              [&](int64_t p, int64_t q, int64_t w) { visit(p, w, q); });
        } else {
          const int64_t filter = o * in_per_group + i;
          ForEachProductOfPlanes(
              axes, {output, input, filter * taps},
              [&](int64_t p, int64_t q, int64_t w) { visit(q, w, p); });
        }
      }
    }
  }
}

// Returns, for each element of the output in order, the element of a bias of
// shape `bias` that is added to it.
std::vector<int64_t> BiasIndices(const ConvProblem& problem, const Dims& bias) {
  return BroadcastOffsets(BroadcastBiasDims(problem, bias),
                          OutputDims(problem));
}

std::vector<double> ExactOutput(const ConvProblem& problem,
                                const ExactOperands& operands) {
  const auto& x = operands[PositionOf(Operand::kInput)];
  const auto& weight = operands[PositionOf(Operand::kWeight)];
  std::vector<double> y(CountOf(OutputDims(problem)));
  ForEachProduct(problem, [&](int64_t i, int64_t w, int64_t o) {
    y[o] += x[i] * weight[w];
  });
  if (problem.bias) {
    const auto& bias = operands[PositionOf(Operand::kBias)];
    const std::vector<int64_t> indices = BiasIndices(problem, *problem.bias);
    for (size_t o = 0; o < y.size(); ++o) y[o] += bias[indices[o]];
  }
  if (problem.residual) {
    const auto& residual = operands[PositionOf(Operand::kResidual)];
    for (size_t o = 0; o < y.size(); ++o) y[o] += residual[o];
  }
  if (problem.relu) {
    for (double& sum : y) sum = sum < 0 ? 0 : sum;
  }
  return y;
}

// Returns grad_output where the ReLU's output is > 0 and 0 elsewhere, also
// instead of NaN; or grad_output itself if `problem` has no ReLU.
std::vector<double> MaskedGradOutput(const ConvProblem& problem,
                                     const ExactOperands& operands) {
  std::vector<double> g = operands[PositionOf(Operand::kGradOutput)];
  if (!problem.relu) return g;
  const auto& output = operands[PositionOf(Operand::kOutput)];
  for (size_t o = 0; o < g.size(); ++o) g[o] = output[o] > 0 ? g[o] : 0;
  return g;
}

}  // namespace

std::vector<double> ExactResult(const ConvOperation& operation, Result which,
                                const ExactOperands& operands) {
  const ConvProblem& problem = operation.problem;
  if (which == Result::kOutput) return ExactOutput(problem, operands);
  std::vector<double> g = MaskedGradOutput(problem, operands);
  if (which == Result::kGradResidual) return g;
  const Dims dims = operation.result(which)->descriptor.dims;
  std::vector<double> gradient(CountOf(dims));
  if (which == Result::kGradInput) {
    const auto& weight = operands[PositionOf(Operand::kWeight)];
    ForEachProduct(problem, [&](int64_t i, int64_t w, int64_t o) {
      gradient[i] += weight[w] * g[o];
    });
  } else if (which == Result::kGradWeight) {
    const auto& x = operands[PositionOf(Operand::kInput)];
    ForEachProduct(problem, [&](int64_t i, int64_t w, int64_t o) {
      gradient[w] += x[i] * g[o];
    });
  } else {
    const std::vector<int64_t> indices = BiasIndices(problem, dims);
    for (size_t o = 0; o < g.size(); ++o) gradient[indices[o]] += g[o];
  }
  return gradient;
}

}  // namespace convgrad
