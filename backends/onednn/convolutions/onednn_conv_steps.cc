#include "backends/onednn/convolutions/onednn_conv_steps.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/core/convolution/conv_steps.h"
#include "backends/kernels/copies/element_convert.h"
#include "backends/onednn/convolutions/onednn_f16_depthwise_steps.h"
#include "backends/onednn/convolutions/onednn_host_steps.h"
#include "backends/onednn/convolutions/onednn_library_pass.h"
#include "backends/onednn/convolutions/onednn_tensor_copies.h"
#include "backends/onednn/library/onednn_cost_model.h"
#include "backends/onednn/library/onednn_reduction.h"
#include "backends/onednn/library/onednn_types.h"

namespace convgrad::onednn {
namespace {

// Returns whether a pointwise pass of stride 2 is faster on a copy without the
// unread elements. Measured on an EPYC 9004 (tests/bench/compute_ratio) for
// ResNet-50: 0.7 to 1.0 times the time in 16 bits, 0.8 to 1.2 times in f32.
bool GathersSteps(const ConvOperation& operation) {
  const auto& input = operation.operand(Operand::kInput);
  const auto& activation =
      input ? input : operation.operand(Operand::kGradOutput);
  return activation && ByteSizeOf(activation->dtype) == 2;
}

// The most numbers of a channel that the library may sum. It adds them in f32,
// where the roundings of numbers of one sign may all have one sign. The error
// of a longer sum would exceed the bound of proto/correctness.md.
constexpr int64_t kMostSummed = 128;

// Appends a step that writes the bias in f32, and repeats a single number
// `size` times. Returns its location.
Tensor AddBiasInF32(const Tensor& bias, int64_t size, PlanBuilder* builder) {
  const int64_t count = ElementCount(bias.descriptor);
  const DataType dtype = bias.descriptor.dtype;
  Tensor made =
      builder->Allocate({DataType::kF32, Layout::kNCX, Dims{1, size}});
  builder->Add({bias.location}, {made.location}, [=](const RunContext& at) {
    auto* values = at.Write<float>(made.location);
    ConvertRun(dtype, at.At(bias.location), DataType::kF32, values, count);
    if (size > count) std::fill_n(values + 1, size - 1, values[0]);
  });
  return made;
}

// Appends the reduction of the row-major `gradient` to `bias`.
void AddReduction(const Tensor& gradient, const Tensor& bias, float scale,
                  PlanBuilder* builder) {
  const auto reduction = std::make_shared<const BiasReduction>(
      gradient.descriptor, bias.descriptor.dims, builder->threads());
  const Location scratch = builder->Allocate(reduction->scratch_bytes());
  builder->Add(
      {gradient.location}, {bias.location, scratch}, [=](const RunContext& at) {
        reduction->Run(at.At(gradient.location), scale, bias.descriptor.dtype,
                       at.At(bias.location), at.At(scratch));
      });
}

// Translates one operation; used once, by one thread. The operation and the
// preference must outlive it.
class Translator {
 public:
  Translator(const ConvOperation& operation, const ComputeOptions& options,
             const FormatPreference& preference)
      : operation_(operation),
        options_(options),
        preference_(preference),
        builder_(operation.results.size(), options.threads),
        copies_(&builder_) {}

  absl::StatusOr<std::unique_ptr<Plan>> Translate();

 private:
  // Append a step. Passes wait until all of them are known, because their
  // formats are chosen together. The bias sum waits as well, because a pass may
  // compute it.
  void Add(const MaskStep& step);
  void Add(const CopyStep& step);
  void Add(const PassStep& step);
  void Add(const BiasSumStep& step) { bias_sum_ = step; }
  void Add(const ZeroStep& step) { AddZero(Locate(step.result), &builder_); }

  absl::Status AddPasses();
  absl::Status AddByLibrary(ChosenPass chosen, PlacedPass pass);
  std::optional<F16Depthwise> F16DepthwiseOf() const;

  Tensor Locate(const StepTensor& tensor) const;
  // Returns a location for the tensor with which `epilogue` begins.
  Tensor PlaceSums(const Tensor& result, const Epilogue& epilogue);
  // Returns where the pass may also write the bias gradient; nullopt if it
  // can't compute it.
  std::optional<Tensor> BiasToSum(const PlacedPass& pass) const;
  // Makes the library's pass compute the bias gradient, if the library can
  // store it, isn't slow at it, and sums few numbers.
  absl::Status FuseBiasSum(PassSpec spec, Candidate* chosen, PlacedPass* pass);

  const ConvOperation& operation_;
  const ComputeOptions options_;
  const FormatPreference& preference_;
  std::optional<Lowering> lowering_;  // absent without passes
  PlanBuilder builder_;
  TensorCopies copies_;
  Location masked_;
  std::vector<PlacedPass> passes_;
  std::optional<BiasSumStep> bias_sum_;
};

Tensor Translator::Locate(const StepTensor& tensor) const {
  switch (tensor.home) {
    case StepTensor::Home::kOperand:
      return {tensor.descriptor, PlanBuilder::OperandAt(tensor.index)};
    case StepTensor::Home::kResult:
      return {tensor.descriptor, PlanBuilder::ResultAt(tensor.index)};
    case StepTensor::Home::kMaskedGradient:
      break;
  }
  return {tensor.descriptor, masked_};
}

Tensor Translator::PlaceSums(const Tensor& result, const Epilogue& epilogue) {
  if (!epilogue.needs_sums()) return result;
  const TensorDescriptor sums =
      PlainDescriptor(result.descriptor, DataType::kF32);
  return sums == result.descriptor ? result : builder_.Allocate(sums);
}

void Translator::Add(const MaskStep& step) {
  masked_ = builder_.Allocate(step.masked.descriptor).location;
  AddMask(Locate(step.gradient), Locate(step.output), Locate(step.masked),
          &builder_);
}

void Translator::Add(const CopyStep& step) {
  Epilogue epilogue;
  epilogue.scale = step.scale;
  const Tensor result = Locate(step.to);
  const Tensor sums = PlaceSums(result, epilogue);
  AddReorder(Locate(step.from), sums, &builder_);
  AddFinish({sums, result, epilogue, {}, {}}, &builder_);
}

void Translator::Add(const PassStep& step) {
  PlacedPass& pass = passes_.emplace_back(PlacedPass{
      step.pass, Locate(step.data), Locate(step.weight), Locate(step.out),
      std::nullopt, Finish{{}, Locate(step.result()), step.epilogue, {}, {}}});
  Epilogue& epilogue = pass.finish.epilogue;
  if (epilogue.bias) {
    const Tensor bias = Locate(*epilogue.bias);
    const int64_t count = ElementCount(bias.descriptor);
    // The library's forward pass adds one number per channel.
    if (step.pass == Pass::kForward && !epilogue.residual &&
        epilogue.scale == 1 &&
        (count == 1 || IsPerChannel(operation_.problem, *epilogue.bias))) {
      pass.bias =
          AddBiasInF32(bias, operation_.problem.out_channels, &builder_);
      epilogue.bias.reset();
    } else {
      pass.finish.bias = AddBiasInF32(bias, count, &builder_).location;
    }
  }
  if (epilogue.residual) {
    const Tensor residual = copies_.RowMajor(Locate(*epilogue.residual));
    epilogue.residual->descriptor = residual.descriptor;
    pass.finish.residual = residual.location;
  }
  pass.finish.sums = PlaceSums(pass.finish.result, epilogue);
  pass.tensor(ResultOf(step.pass)) = pass.finish.sums;
}

std::optional<Tensor> Translator::BiasToSum(const PlacedPass& pass) const {
  if (pass.pass != Pass::kBackwardWeight || !bias_sum_ ||
      bias_sum_->scale != 1 || lowering_->mirrored() ||
      !IsPerChannel(operation_.problem, bias_sum_->bias)) {
    return std::nullopt;
  }
  return Locate(bias_sum_->bias);
}

absl::Status Translator::FuseBiasSum(PassSpec spec, Candidate* chosen,
                                     PlacedPass* pass) {
  const std::optional<Tensor> bias = BiasToSum(*pass);
  if (!bias || SumsBiasSlowly(spec, *chosen)) return absl::OkStatus();
  const int64_t summed = ElementCount(bias_sum_->gradient.descriptor) /
                         operation_.problem.out_channels;
  if (summed > kMostSummed) return absl::OkStatus();
  spec.bias = bias->descriptor.dtype;
  if (spec.bias != DataType::kF32 && spec.bias != spec.operand_dtype) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(std::optional<Candidate> summing,
                   MakeCandidate(spec, chosen->format));
  if (!summing) return absl::OkStatus();
  *chosen = *std::move(summing);
  pass->bias = bias;
  bias_sum_.reset();
  return absl::OkStatus();
}

absl::Status Translator::AddByLibrary(ChosenPass chosen, PlacedPass pass) {
  Candidate& candidate = chosen.candidate;
  RETURN_IF_ERROR(FuseBiasSum(std::move(chosen.spec), &candidate, &pass));
  builder_.AppendImplementation(absl::StrCat(NameOf(pass.pass), "=",
                                             candidate.implementation, "/",
                                             NameOf(candidate.format)));
  RETURN_IF_ERROR(
      AddLibraryPass(pass, *lowering_, candidate, &copies_, &builder_));
  AddFinish(pass.finish, &builder_);
  return absl::OkStatus();
}

std::optional<F16Depthwise> Translator::F16DepthwiseOf() const {
  if (operation_.dtype() != DataType::kF16 || operation_.problem.axes.empty() ||
      lowering_->mirrored() || lowering_->Crops(Role::kData) ||
      lowering_->Crops(Role::kWeight)) {
    return std::nullopt;
  }
  return F16Depthwise::Make(lowering_->problem());
}

absl::Status Translator::AddPasses() {
  lowering_.emplace(operation_.problem, GathersSteps(operation_));
  if (const auto depthwise = F16DepthwiseOf()) {
    for (PlacedPass& pass : passes_) {
      builder_.AppendImplementation(
          absl::StrCat(NameOf(pass.pass), "=half_depthwise"));
      pass.bias = pass.pass == Pass::kForward ? pass.bias : BiasToSum(pass);
      if (pass.pass == Pass::kBackwardWeight && pass.bias) bias_sum_.reset();
    }
    AddF16Depthwise(*depthwise, passes_, &builder_);
    for (const PlacedPass& pass : passes_) AddFinish(pass.finish, &builder_);
    return absl::OkStatus();
  }
  std::vector<PassSpec> specs;
  for (const PlacedPass& pass : passes_) {
    specs.push_back(SpecOf(pass, *lowering_, options_, operation_.dtype(),
                           passes_.size() > 1));
  }
  ASSIGN_OR_RETURN(std::vector<ChosenPass> chosen,
                   ChooseFormats(std::move(specs), preference_));
  for (size_t i = 0; i < passes_.size(); ++i) {
    RETURN_IF_ERROR(AddByLibrary(std::move(chosen[i]), std::move(passes_[i])));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Plan>> Translator::Translate() {
  for (const ConvStep& step : StepsOf(operation_)) {
    std::visit([this](const auto& kind) { Add(kind); }, step);
  }
  if (!passes_.empty()) RETURN_IF_ERROR(AddPasses());
  if (bias_sum_) {
    AddReduction(copies_.RowMajor(Locate(bias_sum_->gradient)),
                 Locate(bias_sum_->bias), bias_sum_->scale, &builder_);
  }
  if (builder_.implementation().empty()) {
    builder_.AppendImplementation(operation_.problem.batch == 0 ? "zero"
                                                                : "sum");
  }
  return PlanBuilder::MakePlan(std::move(builder_));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Plan>> BuildConvPlan(
    const ConvOperation& operation, const ComputeOptions& options,
    const FormatPreference& preference) {
  return Translator(operation, options, preference).Translate();
}

}  // namespace convgrad::onednn
