#include "backends/proof/small_problems.h"

#include <algorithm>
#include <optional>

#include "backends/core/status.h"

namespace convgrad {
namespace {

// The work of the reference, which does about 5e8 multiply-adds and 5e7
// elements per second.
struct Cost {
  int64_t macs;
  int64_t elements;
};
constexpr Cost kCheap = {int64_t{1} << 21, int64_t{1} << 17};
constexpr Cost kMost = {8'000'000, int64_t{1} << 18};

bool IsWithin(const ConvOperation& operation, const Cost& limit) {
  int64_t elements = 0;
  for (const auto& tensor : operation.operands) {
    if (tensor) elements += ElementCount(*tensor);
  }
  for (const ResultRequest& request : operation.results) {
    elements += ElementCount(request.descriptor);
  }
  return operation.flops() / 2 <= limit.macs && elements <= limit.elements;
}

// Returns two vectors of 16, plus the remainder of the last vector.
int64_t FewOf(int64_t channels) {
  return channels < 48 ? channels : 32 + channels % 16;
}

void ReduceChannels(ConvProblem* problem) {
  const int64_t in = problem->in_channels / problem->groups;
  const int64_t out = problem->out_channels / problem->groups;
  // Libraries process the groups of a depthwise problem in vectors.
  const bool is_depthwise = in == 1 || out == 1;
  problem->groups = is_depthwise ? FewOf(problem->groups)
                                 : std::min<int64_t>(problem->groups, 3);
  problem->in_channels = problem->groups * FewOf(in);
  problem->out_channels = problem->groups * FewOf(out);
}

// Halves the positions `halvings` times. Keeps windows that see each pad, two
// windows that see none, and the rest after the last window.
void ReduceAxis(bool transposed, int halvings, SpatialAxis* axis) {
  const int64_t stride = axis->stride;
  const auto windows_in = [stride](int64_t pad) {
    return pad <= 0 ? 0 : (pad + stride - 1) / stride;
  };
  const int64_t windows =
      std::max(windows_in(axis->pad_begin) + 2 + windows_in(axis->pad_end),
               (transposed ? axis->in : axis->out) >> halvings);
  if (transposed) {
    axis->in = std::min(axis->in, windows);
    return;
  }
  const int64_t extent = (axis->kernel - 1) * axis->dilation + 1;
  const int64_t pads = axis->pad_begin + axis->pad_end;
  const int64_t rest = (axis->in + pads - extent) % stride;
  axis->in = std::min(axis->in, (windows - 1) * stride + extent - pads + rest);
}

// Enough halvings for any extent.
constexpr int kMostHalvings = 32;

absl::Status ReducePositions(int halvings, ConvProblem* problem) {
  if (problem->axes.empty()) {
    // The positions of a linear problem are its items.
    problem->batch = std::min(problem->batch,
                              std::max<int64_t>(problem->batch >> halvings, 2));
    return absl::OkStatus();
  }
  problem->batch = std::min<int64_t>(problem->batch, 2);
  for (SpatialAxis& axis : problem->axes) {
    ReduceAxis(problem->transposed, halvings, &axis);
  }
  ASSIGN_OR_RETURN(*problem, Resolve(*problem, {}));
  return absl::OkStatus();
}

// Returns a bias of the same kind for `problem`, which is smaller than `from`.
std::optional<Dims> BiasFor(const ConvProblem& problem,
                            const ConvProblem& from) {
  if (!from.bias || from.bias->empty()) return from.bias;
  const Dims output = OutputDims(problem);
  Dims bias = *from.bias;
  if (bias.size() == 1) {
    if (bias[0] != 1) bias[0] = problem.out_channels;
    return bias;
  }
  for (size_t i = 0; i < bias.size(); ++i) {
    if (bias[i] != 1) bias[i] = output[i];
  }
  return bias;
}

// Returns `operation` on `problem`; nullopt if it isn't valid.
std::optional<ConvOperation> For(const ConvProblem& problem,
                                 ConvOperation operation) {
  const auto reduce = [&](auto which, TensorDescriptor* tensor) {
    tensor->dims = DimsOf(problem, which);
    if (tensor->groups == operation.problem.groups) {
      tensor->groups = problem.groups;
    }
  };
  for (Operand which : kAllOperands) {
    if (operation.operand(which)) reduce(which, &*operation.operand(which));
  }
  for (ResultRequest& request : operation.results) {
    reduce(request.which, &request.descriptor);
  }
  operation.problem = problem;
  if (!Validate(operation).ok()) return std::nullopt;
  return operation;
}

// Returns `operation` on a smaller problem, nullopt if there is none.
std::optional<ConvOperation> Reduced(const ConvOperation& operation,
                                     bool few_channels, int halvings) {
  ConvProblem problem = operation.problem;
  // Without a bias, because Resolve requires one that fits the new problem.
  problem.bias.reset();
  if (few_channels) ReduceChannels(&problem);
  if (!ReducePositions(halvings, &problem).ok()) return std::nullopt;
  problem.bias = BiasFor(problem, operation.problem);
  return For(problem, operation);
}

}  // namespace

bool IsCheap(const ConvOperation& operation) {
  return IsWithin(operation, kCheap);
}

std::vector<ConvOperation> SmallProblems(const ConvOperation& operation) {
  std::vector<ConvOperation> forms;
  // Returns whether there is no need to try fewer positions.
  const auto add = [&](bool few_channels, int halvings) {
    auto form = Reduced(operation, few_channels, halvings);
    if (!form || !IsWithin(*form, kMost)) return false;
    const auto is_equal = [&](const ConvOperation& other) {
      return other.problem == form->problem;
    };
    if (std::none_of(forms.begin(), forms.end(), is_equal)) {
      forms.push_back(*std::move(form));
    }
    return true;
  };
  add(true, kMostHalvings);
  add(false, kMostHalvings);
  for (const bool few_channels : {true, false}) {
    int halvings = 0;
    while (halvings < kMostHalvings && !add(few_channels, halvings)) ++halvings;
  }
  return forms;
}

}  // namespace convgrad
