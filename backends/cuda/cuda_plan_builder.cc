#include "backends/cuda/cuda_plan_builder.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"

namespace convgrad::cuda {
namespace {

bool IsPerChannel(const ConvProblem& problem, const Dims& dims) {
  return BroadcastBiasDims(problem, dims) == PerChannelDims(problem);
}

TensorDescriptor InRowMajor(TensorDescriptor tensor) {
  if (!IsRowMajor(tensor.layout)) {
    tensor.layout = IsWeightLayout(tensor.layout) ? Layout::kOIX : Layout::kNXC;
  }
  return tensor;
}

// Whether both say the same of a whole buffer.
bool AreTheSame(MappedTensor a, MappedTensor b) {
  for (int i = 0; i < kMapAxes; ++i) {
    if (a.extents[i] == 1) a.map.stride[i] = b.map.stride[i] = 0;
  }
  return a.dtype == b.dtype && a.extents == b.extents && a.map == b.map &&
         a.size == b.size && !a.has_gaps && !b.has_gaps;
}

Role ResultRole(Pass pass) {
  switch (pass) {
    case Pass::kBackwardData:
      return Role::kData;
    case Pass::kBackwardWeight:
      return Role::kWeight;
    case Pass::kForward:
      break;
  }
  return Role::kOut;
}

}  // namespace

PlanBuilder::PlanBuilder(const ConvOperation& operation,
                         const GraphPlanner& planner)
    : operation_(operation), lowering_(operation.problem), planner_(planner) {}

absl::Status PlanBuilder::Build() {
  PrepareGradient();
  for (size_t i = 0; i < operation_.results.size(); ++i) {
    switch (operation_.results[i].which) {
      case Result::kOutput:
        RETURN_IF_ERROR(AddForward(i));
        break;
      case Result::kGradInput:
      case Result::kGradWeight:
        RETURN_IF_ERROR(AddGradient(i));
        break;
      case Result::kGradBias:
        AddGradBias(i);
        break;
      case Result::kGradResidual:
        AddGradResidual(i);
        break;
    }
  }
  return absl::OkStatus();
}

PlanBuilder::Tensor PlanBuilder::OperandTensor(Operand operand) const {
  return {*operation_.operand(operand),
          {Location::Area::kOperand, static_cast<int>(operand), 0}};
}

PlanBuilder::Tensor PlanBuilder::ResultTensor(size_t index) const {
  return {operation_.results[index].descriptor,
          {Location::Area::kResult, static_cast<int>(index), 0}};
}

PlanBuilder::Tensor PlanBuilder::Allocate(const TensorDescriptor& descriptor) {
  return {descriptor, program_.Allocate(*ByteSize(descriptor))};
}

MappedTensor PlanBuilder::Mapped(const TensorDescriptor& descriptor) const {
  return MapOf(descriptor, operation_.problem.groups);
}

MappedTensor PlanBuilder::ViewOf(Role role,
                                 const TensorDescriptor& tensor) const {
  const bool is_weight = role == Role::kWeight;
  const StridedView view = is_weight             ? lowering_.Weight(tensor)
                           : role == Role::kData ? lowering_.Data(tensor)
                                                 : lowering_.Out(tensor);
  return MapOf(view, is_weight, lowering_.problem().groups,
               ElementCount(tensor));
}

absl::Status PlanBuilder::AddForward(size_t index) {
  const ConvProblem& problem = operation_.problem;
  Finish finish;
  if (problem.bias) finish.bias = OperandTensor(Operand::kBias);
  if (problem.residual) finish.residual = OperandTensor(Operand::kResidual);
  finish.relu = problem.relu;
  finish.scale = operation_.results[index].scale;
  Sides sides;
  sides.weight = OperandTensor(Operand::kWeight);
  (lowering_.mirrored() ? sides.out : sides.data) =
      OperandTensor(Operand::kInput);
  return AddConvolution(index, sides, finish);
}

absl::Status PlanBuilder::AddGradient(size_t index) {
  Finish finish;
  finish.scale = operation_.results[index].scale;
  Sides sides;
  const bool mirrored = lowering_.mirrored();
  (mirrored ? sides.data : sides.out) = gradient_;
  if (operation_.results[index].which == Result::kGradWeight) {
    (mirrored ? sides.out : sides.data) = OperandTensor(Operand::kInput);
  } else {
    sides.weight = OperandTensor(Operand::kWeight);
  }
  return AddConvolution(index, sides, finish);
}

absl::StatusOr<Candidate> PlanBuilder::Choose(
    PassSpec spec, Finish* finish, std::optional<Tensor>* fused_bias) const {
  const bool may_fuse =
      spec.pass == Pass::kForward && finish->bias && !finish->residual &&
      finish->scale == 1 && !lowering_.mirrored() &&
      IsPerChannel(operation_.problem, finish->bias->descriptor.dims);
  if (may_fuse) {
    PassSpec fused = spec;
    fused.bias = true;
    auto candidate = ChooseCandidate(fused, planner_);
    // Not at the price of computing 16-bit operands in f32.
    if (candidate.ok() && candidate->spec.operands == spec.operands) {
      *fused_bias = std::exchange(finish->bias, std::nullopt);
      return candidate;
    }
  }
  if (finish->is_sum()) spec.result = DataType::kF32;
  return ChooseCandidate(spec, planner_);
}

absl::Status PlanBuilder::AddConvolution(size_t index, const Sides& sides,
                                         Finish finish) {
  const Tensor result = ResultTensor(index);
  const PassSpec spec{lowering_.PassFor(operation_.results[index].which),
                      lowering_.problem(), operation_.dtype(),
                      result.descriptor.dtype};
  std::optional<Tensor> fused_bias;
  ASSIGN_OR_RETURN(Candidate candidate, Choose(spec, &finish, &fused_bias));
  // What the convolution is brought to before it is finished.
  TensorDescriptor sum = InRowMajor(result.descriptor);
  if (finish.is_sum()) sum.dtype = DataType::kF32;
  const bool is_whole = sum == result.descriptor;
  const Tensor sink = is_whole ? result : Allocate(sum);

  const Role role = ResultRole(spec.pass);
  const MappedTensor view = ViewOf(role, sum);
  const MappedTensor dense = DenseMap(candidate, role, view);
  const bool writes_sink = AreTheSame(dense, view);
  const Location written =
      writes_sink ? sink.location
                  : program_.Allocate(dense.size * ByteSizeOf(dense.dtype));
  const auto place = [&](Role side, const Tensor& tensor) {
    return side == role ? written : Read(candidate, side, tensor);
  };
  GraphLocations at{place(Role::kData, sides.data),
                    place(Role::kWeight, sides.weight),
                    place(Role::kOut, sides.out),
                    {},
                    program_.Allocate(candidate.graph->workspace_bytes())};
  if (fused_bias) at.bias = InFloat(*fused_bias);
  AddGraph(std::move(candidate), at);
  if (!writes_sink) AddElementwise(dense, written, view, sink.location, {});
  if (!is_whole || finish.is_sum() || finish.relu) {
    AddElementwise(Mapped(sum), sink.location, Mapped(result.descriptor),
                   result.location, finish);
  }
  return absl::OkStatus();
}

void PlanBuilder::AddGraph(Candidate candidate, const GraphLocations& at) {
  const GraphSpec& spec = candidate.spec;
  absl::StrAppend(&implementation_, implementation_.empty() ? "" : " ",
                  NameOf(spec.pass), "=", candidate.graph->engine(), "/",
                  NameOf(spec.operands), ">", NameOf(spec.result), "/",
                  NameOf(spec.format));
  const bool has_bias = spec.bias;
  program_.Add([=, graph = std::shared_ptr<const ConvGraph>(std::move(
                       candidate.graph))](const Program::Context& context) {
    GraphBuffers buffers{context.At(at.data), context.At(at.weight),
                         context.At(at.out), nullptr, context.At(at.workspace)};
    if (has_bias) buffers.bias = context.At(at.bias);
    return graph->Run(*context.target, context.stream, buffers);
  });
}

Location PlanBuilder::Read(const Candidate& candidate, Role role,
                           Tensor tensor) {
  if (!IsRowMajor(tensor.descriptor.layout)) {
    const Tensor plain = Allocate(InRowMajor(tensor.descriptor));
    AddElementwise(Mapped(tensor.descriptor), tensor.location,
                   Mapped(plain.descriptor), plain.location, {});
    tensor = plain;
  }
  const MappedTensor view = ViewOf(role, tensor.descriptor);
  const MappedTensor dense = DenseMap(candidate, role, view);
  if (AreTheSame(view, dense)) return tensor.location;
  const Location copy = program_.Allocate(dense.size * ByteSizeOf(dense.dtype));
  AddElementwise(view, tensor.location, dense, copy, {});
  return copy;
}

}  // namespace convgrad::cuda
