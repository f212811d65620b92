#include "backends/core/program/program_shapes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/checked_math.h"
#include "backends/core/program/step_dims.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

constexpr size_t kMinRank = 2;
constexpr size_t kMaxRank = 5;

std::string Text(const Dims& dims) {
  return ToString(absl::MakeConstSpan(dims));
}

// Of a loss. (A temporary would be copied uninitialised, GCC 12 believes.)
const Dims& ScalarDims() {
  static const auto& dims = *new Dims;
  return dims;
}

absl::Status CheckExtents(const Dims& dims, const std::string& field,
                          size_t least, size_t most) {
  if (dims.size() < least || dims.size() > most) {
    return BadShape(field, dims, absl::StrCat("rank ", least, " to ", most));
  }
  for (const int64_t extent : dims) {
    if (extent < 1) return BadShape(field, dims, "extents of at least 1");
  }
  return absl::OkStatus();
}

absl::StatusOr<Dims> Convolution(const StepDims& step) {
  ASSIGN_OR_RETURN(const auto unresolved, step.Problem());
  const auto problem = Resolve(unresolved.first, unresolved.second);
  if (!problem.ok()) return WithFieldPrefix(problem.status(), ".");
  if (WeightDims(*problem) != step.At(1)) {
    return BadShape(".weight", step.At(1), Text(WeightDims(*problem)));
  }
  if (step.Has(2) && step.At(2) != PerChannelBiasDims(*problem)) {
    return BadShape(".bias", step.At(2), Text(PerChannelBiasDims(*problem)));
  }
  return OutputDims(*problem);
}

absl::StatusOr<Dims> BatchNorm(const StepDims& step) {
  for (const size_t position : {1, 2, 3, 4}) {
    RETURN_IF_ERROR(step.CheckPerChannel(position));
  }
  const Dims& x = step.At(0);
  const bool has_one_value = std::all_of(
      x.begin() + 2, x.end(), [](int64_t extent) { return extent == 1; });
  if (BoolAttribute(step.step(), "training") && x[0] == 1 && has_one_value) {
    return BadShape(".x", x, "more than one value per channel in training");
  }
  return x;
}

absl::StatusOr<Dims> Pool(const StepDims& step) {
  ASSIGN_OR_RETURN(const auto axes, step.PoolAxes());
  Dims dims = {step.At(0)[0], step.At(0)[1]};
  for (const PoolAxis& axis : axes) dims.push_back(axis.out);
  return dims;
}

absl::StatusOr<Dims> AdaptivePool(const StepDims& step) {
  RETURN_IF_ERROR(step.CheckSpatial());
  ASSIGN_OR_RETURN(const auto size, step.AxisNumbers("output_size"));
  Dims dims = {step.At(0)[0], step.At(0)[1]};
  for (size_t i = 0; i < step.axes(); ++i) {
    const auto product = CheckedMul(size[i], step.At(0)[i + 2]);
    if (!product || !CheckedAdd(*product, size[i])) {
      return InvalidField(Reason::kOverflow, ".output_size",
                          absl::StrCat(size[i]), "sizes below 2^63 bytes");
    }
    dims.push_back(size[i]);
  }
  return dims;
}

absl::StatusOr<Dims> Broadcast(const StepDims& step) {
  const Dims& a = step.At(0);
  const Dims& b = step.At(1);
  if (a == b) return a;
  bool fits = a.size() == b.size();
  for (size_t i = 0; fits && i < a.size(); ++i) {
    fits = b[i] == 1 || (i < 2 && b[i] == a[i]);
  }
  if (fits) return a;
  return BadShape(".b", b,
                  absl::StrCat(Text(a),
                               ", or batch and channels of it or 1, "
                               "and spatial extents of 1"));
}

absl::StatusOr<Dims> Concat(const StepDims& step) {
  Dims dims = step.At(0);
  for (size_t i = 1; i < step.step().operands.size(); ++i) {
    Dims expected = step.At(i);
    if (expected.size() == dims.size()) expected[1] = dims[1];
    if (expected != dims) {
      return BadShape(absl::StrCat(".operands[", i, "]"), step.At(i),
                      absl::StrCat(Text(step.At(0)), " but for the channels"));
    }
    const auto channels = CheckedAdd(dims[1], step.At(i)[1]);
    if (!channels)
      return BadShape(".operands", step.At(i), "sizes below 2^63 bytes");
    dims[1] = *channels;
  }
  return dims;
}

absl::StatusOr<Dims> Flatten(const StepDims& step) {
  const auto columns =
      CheckedProduct(absl::MakeConstSpan(step.At(0)).subspan(1));
  if (!columns) return BadShape(".x", step.At(0), "sizes below 2^63 bytes");
  return Dims{step.At(0)[0], *columns};
}

absl::StatusOr<Dims> Upsample(const StepDims& step) {
  ASSIGN_OR_RETURN(const auto axes, step.UpsampleAxes());
  if (WordAttribute(step.step(), "mode") == "bilinear" && axes.size() != 2) {
    return BadShape(".x", step.At(0), "rank 4 of mode=bilinear");
  }
  Dims dims = {step.At(0)[0], step.At(0)[1]};
  for (const UpsampleAxis& axis : axes) dims.push_back(axis.out);
  return dims;
}

absl::StatusOr<Dims> Normalize(const StepDims& step) {
  for (const absl::string_view name : {"mean", "std"}) {
    const auto count =
        static_cast<int64_t>(FloatsAttribute(step.step(), name).size());
    if (count == 1 || count == step.At(0)[1]) continue;
    return InvalidField(
        Reason::kShapeMismatch, absl::StrCat(".", name),
        absl::StrCat(count, " numbers"),
        absl::StrCat("one, or one per channel of ", Text(step.At(0))));
  }
  return step.At(0);
}

absl::StatusOr<Dims> CrossEntropy(const StepDims& step) {
  Dims expected = step.At(0);
  expected.erase(expected.begin() + 1);
  if (step.At(1) != expected) {
    return BadShape(".target", step.At(1),
                    absl::StrCat(Text(expected),
                                 ", the logits' dims without "
                                 "their channels"));
  }
  RETURN_IF_ERROR(step.CheckPerChannel(2));
  return ScalarDims();
}

absl::StatusOr<Dims> Infer(const StepDims& step) {
  switch (step.step().op) {
    case Operator::kConv:
    case Operator::kConvTranspose:
    case Operator::kLinear:
      return Convolution(step);
    case Operator::kBatchNorm:
      return BatchNorm(step);
    case Operator::kMaxPool:
    case Operator::kAvgPool:
      return Pool(step);
    case Operator::kAdaptiveAvgPool:
      return AdaptivePool(step);
    case Operator::kAdd:
    case Operator::kMul:
      return Broadcast(step);
    case Operator::kConcat:
      return Concat(step);
    case Operator::kFlatten:
      return Flatten(step);
    case Operator::kUpsample:
      return Upsample(step);
    case Operator::kNormalize:
      return Normalize(step);
    case Operator::kCrossEntropy:
      return CrossEntropy(step);
    case Operator::kMse:
      if (step.At(1) != step.At(0))
        return BadShape(".target", step.At(1), Text(step.At(0)));
      return ScalarDims();
    case Operator::kRelu:
    case Operator::kRelu6:
    case Operator::kLeakyRelu:
    case Operator::kSigmoid:
    case Operator::kSilu:
    case Operator::kDropout:
      break;
  }
  return step.At(0);
}

// Returns `total` plus the bytes of `dims` in double.
absl::StatusOr<int64_t> AddBytes(int64_t total, const Dims& dims,
                                 const std::string& field) {
  const auto count = CheckedProduct(dims);
  const auto bytes = count ? CheckedMul(*count, sizeof(double)) : count;
  const auto sum = bytes ? CheckedAdd(total, *bytes) : bytes;
  if (sum) return *sum;
  return InvalidField(Reason::kOverflow, field, Text(dims),
                      "values of less than 2^63 bytes together");
}

// Returns the pairs of an output and an input in its window.
int64_t TapsOf(const ProgramStep& step, const ProgramShapes& shapes) {
  const Dims& result = shapes.dims.at(step.result);
  int64_t taps = SaturatingMul(result[0], result[1]);
  for (size_t i = 2; i < result.size(); ++i) {
    taps = SaturatingMul(taps, MostTaps(step, shapes, i - 2));
  }
  return taps;
}

// Returns the multiply-adds of the forward.
int64_t MacsOf(const ProgramStep& step, const ProgramShapes& shapes) {
  switch (step.op) {
    case Operator::kConv:
    case Operator::kConvTranspose:
    case Operator::kLinear:
      return MultiplyAdds(ProblemOf(step, shapes));
    case Operator::kFlatten:
      return 0;
    default:
      break;
  }
  if (IsPooling(step.op)) return TapsOf(step, shapes);
  // InferShapes has checked the sizes. A loss computes by its operand's.
  const auto count = [&](const std::string& name) {
    return CheckedProduct(shapes.dims.at(name)).value_or(0);
  };
  return std::max(count(step.result), count(step.operands[0]));
}

int64_t FlopsOf(const ProgramStep& step, const ProgramShapes& shapes) {
  return SaturatingMul(MacsOf(step, shapes), 2);
}

}  // namespace

absl::StatusOr<ProgramShapes> InferShapes(const Program& program,
                                          const std::vector<Dims>& inputs) {
  if (inputs.size() != program.inputs.size()) {
    return InvalidField(Reason::kMissing, "inputs",
                        absl::StrCat(inputs.size(), " tensors"),
                        absl::StrCat(program.inputs.size()));
  }
  ProgramShapes shapes;
  int64_t bytes = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ProgramInput& input = program.inputs[i];
    const std::string field = absl::StrCat("inputs.", input.name, ".dims");
    const size_t least = input.is_index ? 1 : kMinRank;
    const size_t most = input.is_index ? kMaxRank - 1 : kMaxRank;
    RETURN_IF_ERROR(CheckExtents(inputs[i], field, least, most));
    ASSIGN_OR_RETURN(bytes, AddBytes(bytes, inputs[i], field));
    shapes.dims.emplace(input.name, inputs[i]);
  }
  for (const ProgramParameter& parameter : program.parameters) {
    ASSIGN_OR_RETURN(bytes,
                     AddBytes(bytes, parameter.dims,
                              absl::StrCat("parameters.", parameter.name)));
    shapes.dims.emplace(parameter.name, parameter.dims);
  }
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const ProgramStep& step = program.steps[i];
    const std::string path = StepPath(program, i);
    const auto dims = Infer(StepDims(step, shapes));
    if (!dims.ok()) return WithFieldPrefix(dims.status(), path);
    ASSIGN_OR_RETURN(bytes, AddBytes(bytes, *dims, path));
    shapes.dims.emplace(step.result, *dims);
    shapes.flops.push_back(FlopsOf(step, shapes));
  }
  return shapes;
}

ConvProblem ProblemOf(const ProgramStep& step, const ProgramShapes& shapes) {
  const auto unresolved = StepDims(step, shapes).Problem();
  return *Resolve(unresolved->first, unresolved->second);
}

std::vector<PoolAxis> PoolAxesOf(const ProgramStep& step,
                                 const ProgramShapes& shapes) {
  return *StepDims(step, shapes).PoolAxes();
}

std::vector<UpsampleAxis> UpsampleAxesOf(const ProgramStep& step,
                                         const ProgramShapes& shapes) {
  return *StepDims(step, shapes).UpsampleAxes();
}

}  // namespace convgrad
