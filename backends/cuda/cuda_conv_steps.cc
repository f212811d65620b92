#include "backends/cuda/cuda_conv_steps.h"

#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "backends/core/convolution/conv_steps.h"
#include "backends/core/status.h"
#include "backends/cuda/cuda_kernel_steps.h"

namespace convgrad::cuda {
namespace {

// A tensor of the caller or a copy of one.
struct Tensor {
  TensorDescriptor descriptor;
  Location location;
};

TensorDescriptor InRowMajor(TensorDescriptor tensor) {
  if (!IsRowMajor(tensor.layout)) {
    tensor.layout = IsWeightLayout(tensor.layout) ? Layout::kOIX : Layout::kNXC;
  }
  return tensor;
}

// Returns whether both describe a whole buffer in the same way.
bool AreTheSame(MappedTensor a, MappedTensor b) {
  for (int i = 0; i < kMapAxes; ++i) {
    if (a.extents[i] == 1) a.map.stride[i] = b.map.stride[i] = 0;
  }
  return a.dtype == b.dtype && a.extents == b.extents && a.map == b.map &&
         a.size == b.size && !a.has_gaps && !b.has_gaps;
}

// Translates one operation; used once. The operation and the target must
// outlive it.
class Translator {
 public:
  Translator(const ConvOperation& operation, const GraphTarget& target)
      : operation_(operation), target_(target) {}

  // Errors: kUnimplemented, kInternal.
  absl::StatusOr<ConvSteps> Translate();

 private:
  // Append a step.
  absl::Status Add(const MaskStep& step);
  absl::Status Add(const CopyStep& step);
  absl::Status Add(const PassStep& step);
  absl::Status Add(const BiasSumStep& step);

  // Appends the graph and the copies that it needs; writes the result to
  // `sink`.
  void AddGraph(const PassStep& step, Candidate candidate, const Tensor& sink);
  // Chooses a graph; one in which cuDNN adds the bias if possible.
  absl::StatusOr<Candidate> Choose(const PassStep& step) const;
  Tensor Locate(const StepTensor& tensor) const;
  Tensor Allocate(const TensorDescriptor& descriptor);
  Elements AllocateDense(const MappedTensor& map);
  Elements Mapped(const Tensor& tensor) const;
  Elements Mapped(const StepTensor& tensor) const {
    return Mapped(Locate(tensor));
  }
  // Returns the bias as a broadcast row of numbers.
  Elements BroadcastBias(const StepTensor& bias) const;
  // Returns the part of the tensor that the lowered problem sees. Requires: a
  // row-major layout.
  Elements ViewOf(Role role, const Tensor& tensor) const;
  // Returns the location of the candidate's operand; copies the operand if
  // necessary.
  Location Read(const Candidate& candidate, Role role, Tensor tensor);
  // Returns the bias in f32.
  Location InFloat(const StepTensor& bias);

  const ConvOperation& operation_;
  std::optional<Lowering> lowering_;  // absent without passes
  const GraphTarget& target_;
  Location masked_;
  ConvSteps made_;
};

Tensor Translator::Locate(const StepTensor& tensor) const {
  switch (tensor.home) {
    case StepTensor::Home::kOperand:
      return {tensor.descriptor, {Location::Area::kOperand, tensor.index}};
    case StepTensor::Home::kResult:
      return {tensor.descriptor, {Location::Area::kResult, tensor.index}};
    case StepTensor::Home::kMaskedGradient:
      break;
  }
  return {tensor.descriptor, masked_};
}

Tensor Translator::Allocate(const TensorDescriptor& descriptor) {
  return {descriptor, made_.steps.Allocate(*ByteSize(descriptor))};
}

Elements Translator::AllocateDense(const MappedTensor& map) {
  return {map, made_.steps.Allocate(map.size * ByteSizeOf(map.dtype))};
}

Elements Translator::Mapped(const Tensor& tensor) const {
  return {MapOf(tensor.descriptor, operation_.problem.groups), tensor.location};
}

Elements Translator::BroadcastBias(const StepTensor& bias) const {
  MappedTensor map;
  map.dtype = bias.descriptor.dtype;
  map.map = BroadcastMap(bias.descriptor.dims);
  return {map, Locate(bias).location};
}

Elements Translator::ViewOf(Role role, const Tensor& tensor) const {
  return {MapOf(lowering_->View(role, tensor.descriptor), role == Role::kWeight,
                lowering_->problem().groups, ElementCount(tensor.descriptor)),
          tensor.location};
}

Location Translator::Read(const Candidate& candidate, Role role,
                          Tensor tensor) {
  if (!IsRowMajor(tensor.descriptor.layout)) {
    const Tensor plain = Allocate(InRowMajor(tensor.descriptor));
    AddElementwise(Mapped(tensor), Mapped(plain), {}, &made_.steps);
    tensor = plain;
  }
  const Elements view = ViewOf(role, tensor);
  const MappedTensor dense = DenseMap(candidate, role, view.map);
  if (AreTheSame(view.map, dense)) return tensor.location;
  const Elements copy = AllocateDense(dense);
  AddElementwise(view, copy, {}, &made_.steps);
  return copy.location;
}

Location Translator::InFloat(const StepTensor& bias) {
  const Tensor tensor = Locate(bias);
  if (tensor.descriptor.dtype == DataType::kF32) return tensor.location;
  const Tensor copy =
      Allocate({DataType::kF32, Layout::kNCX, bias.descriptor.dims});
  AddElementwise(Mapped(tensor), Mapped(copy), {}, &made_.steps);
  return copy.location;
}

absl::Status Translator::Add(const MaskStep& step) {
  masked_ = Allocate(step.masked.descriptor).location;
  AddElementwise(Mapped(step.gradient), Mapped(step.masked),
                 {.mask = Mapped(step.output)}, &made_.steps);
  return absl::OkStatus();
}

absl::Status Translator::Add(const CopyStep& step) {
  AddElementwise(Mapped(step.from), Mapped(step.to), {.scale = step.scale},
                 &made_.steps);
  return absl::OkStatus();
}

absl::Status Translator::Add(const BiasSumStep& step) {
  AddBiasSum(Mapped(step.gradient), step.bias.descriptor, step.scale,
             Locate(step.bias).location, &made_.steps);
  return absl::OkStatus();
}

absl::StatusOr<Candidate> Translator::Choose(const PassStep& step) const {
  const Epilogue& epilogue = step.epilogue;
  PassSpec spec{step.pass, lowering_->problem(), operation_.dtype(),
                step.result().descriptor.dtype};
  const bool may_fuse = step.pass == Pass::kForward && epilogue.bias &&
                        !epilogue.residual && epilogue.scale == 1 &&
                        IsPerChannel(operation_.problem, *epilogue.bias);
  if (may_fuse) {
    PassSpec fused = spec;
    fused.bias = true;
    auto candidate = ChooseCandidate(fused, target_);
    // Not if that requires computing 16-bit operands in f32.
    if (candidate.ok() && candidate->spec.operands == spec.operands) {
      return candidate;
    }
  }
  if (epilogue.needs_sums()) spec.result = DataType::kF32;
  return ChooseCandidate(spec, target_);
}

absl::Status Translator::Add(const PassStep& step) {
  if (!lowering_) lowering_.emplace(operation_.problem);
  ASSIGN_OR_RETURN(Candidate candidate, Choose(step));
  Epilogue epilogue = step.epilogue;
  if (candidate.spec.bias) epilogue.bias.reset();
  const Tensor result = Locate(step.result());
  // The tensor to which the convolution writes before the epilogue.
  TensorDescriptor sums = InRowMajor(result.descriptor);
  if (epilogue.needs_sums()) sums.dtype = DataType::kF32;
  const bool is_whole = sums == result.descriptor;
  const Tensor sink = is_whole ? result : Allocate(sums);
  AddGraph(step, std::move(candidate), sink);
  if (is_whole && !epilogue.needs_sums() && !epilogue.relu) {
    return absl::OkStatus();
  }
  ElementEpilogue last{.relu = epilogue.relu, .scale = epilogue.scale};
  if (epilogue.bias) last.bias = BroadcastBias(*epilogue.bias);
  if (epilogue.residual) last.residual = Mapped(*epilogue.residual);
  AddElementwise(Mapped(sink), Mapped(result), last, &made_.steps);
  return absl::OkStatus();
}

void Translator::AddGraph(const PassStep& step, Candidate candidate,
                          const Tensor& sink) {
  const GraphSpec& spec = candidate.spec;
  absl::StrAppend(&made_.implementation,
                  made_.implementation.empty() ? "" : " ", NameOf(spec.pass),
                  "=", candidate.graph->engine(), "/", NameOf(spec.operands),
                  ">", NameOf(spec.result), "/", NameOf(spec.format));
  const Role role = ResultOf(step.pass);
  const Elements view = ViewOf(role, sink);
  const MappedTensor dense = DenseMap(candidate, role, view.map);
  const bool writes_sink = AreTheSame(dense, view.map);
  const Elements written =
      writes_sink ? Elements{dense, sink.location} : AllocateDense(dense);
  const auto place = [&](Role side) {
    return side == role ? written.location
                        : Read(candidate, side, Locate(step.tensor(side)));
  };
  const Location data = place(Role::kData), weight = place(Role::kWeight),
                 out = place(Role::kOut);
  const Location workspace =
      made_.steps.Allocate(candidate.graph->workspace_bytes());
  std::optional<Location> bias;
  if (spec.bias) bias = InFloat(*step.epilogue.bias);
  made_.steps.Add([=, graph = std::shared_ptr<const ConvGraph>(std::move(
                          candidate.graph))](const StepList::Context& at) {
    return graph->Run(*at.target, at.stream,
                      {at.At(data), at.At(weight), at.At(out),
                       bias ? at.At(*bias) : nullptr, at.At(workspace)});
  });
  if (!writes_sink) AddElementwise(written, view, {}, &made_.steps);
}

absl::StatusOr<ConvSteps> Translator::Translate() {
  for (const ConvStep& step : StepsOf(operation_)) {
    RETURN_IF_ERROR(
        std::visit([this](const auto& kind) { return Add(kind); }, step));
  }
  if (made_.implementation.empty()) made_.implementation = "sum";
  return std::move(made_);
}

}  // namespace

absl::StatusOr<ConvSteps> MakeConvSteps(const ConvOperation& operation,
                                        const GraphTarget& target) {
  return Translator(operation, target).Translate();
}

}  // namespace convgrad::cuda
