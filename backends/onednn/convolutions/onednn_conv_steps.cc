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
#include "backends/onednn/execution/onednn_scheduled_plan.h"
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

// Appends a step that writes the bias in f32, and repeats a single number
// `size` times. Returns its location.
Tensor AddBiasInF32(const Tensor& bias, int64_t size, Schedule* schedule) {
  const int64_t count = ElementCount(bias.descriptor);
  const DataType dtype = bias.descriptor.dtype;
  Tensor made =
      NewTensor({DataType::kF32, Layout::kNCX, Dims{1, size}}, schedule);
  schedule->Add(
      kLayoutKind, {bias.location}, {made.location}, [=](const RunContext& at) {
        auto* values = at.Write<float>(made.location);
        ConvertRun(dtype, at.At(bias.location), DataType::kF32, values, count);
        if (size > count) std::fill_n(values + 1, size - 1, values[0]);
      });
  return made;
}

// Appends the reduction of the row-major `gradient` to `bias`.
void AddReduction(const Tensor& gradient, const Tensor& bias, float scale,
                  Schedule* schedule) {
  const auto reduction = std::make_shared<const BiasReduction>(
      gradient.descriptor, bias.descriptor.dims);
  const Location scratch = schedule->AddBuffer(reduction->scratch_bytes());
  schedule->Add(kLayoutKind, {gradient.location}, {bias.location, scratch},
                [=](const RunContext& at) {
                  reduction->Run(at.At(gradient.location), scale,
                                 bias.descriptor.dtype, at.At(bias.location),
                                 at.At(scratch), at.parts());
                });
}

// Returns the buffers of the caller's tensors: all operands, then `results`
// results.
Schedule WithCallersBuffers(size_t results) {
  Schedule schedule;
  for (size_t i = 0; i < kOperandCount; ++i) {
    schedule.AddBuffer({0, Area::kOperand, i});
  }
  for (size_t i = 0; i < results; ++i) {
    schedule.AddBuffer({0, Area::kResult, i});
  }
  return schedule;
}

PlacedSchedule Place(Schedule schedule) {
  MemoryMap memory =
      PlaceBuffers(schedule, std::vector<bool>(schedule.buffers().size()));
  PreparedParts prepared =
      FindPrepared(schedule, {PositionOf(Operand::kWeight)});
  return {std::move(schedule), std::move(memory), {}, std::move(prepared)};
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
        schedule_(WithCallersBuffers(operation.results.size())),
        copies_(&schedule_) {}

  absl::StatusOr<std::unique_ptr<Plan>> Translate();

 private:
  // Append a step. Passes wait until all of them are known, because their
  // formats are chosen together. The bias sum waits as well, because our
  // kernels for f16 may compute it.
  void Add(const MaskStep& step);
  void Add(const CopyStep& step);
  void Add(const PassStep& step);
  void Add(const BiasSumStep& step) { bias_sum_ = step; }

  absl::Status AddPasses();
  // Appends a word that says how a pass is computed.
  void AppendImplementation(absl::string_view word);
  std::optional<F16Depthwise> F16DepthwiseOf() const;

  Tensor Locate(const StepTensor& tensor) const;
  // Returns a location for the tensor with which `epilogue` begins.
  Tensor PlaceSums(const Tensor& result, const Epilogue& epilogue);

  const ConvOperation& operation_;
  const ComputeOptions options_;
  const FormatPreference& preference_;
  std::optional<Lowering> lowering_;  // absent without passes
  Schedule schedule_;
  TensorCopies copies_;
  Location masked_;
  std::vector<PlacedPass> passes_;
  std::optional<BiasSumStep> bias_sum_;
  std::string implementation_;
};

Tensor Translator::Locate(const StepTensor& tensor) const {
  switch (tensor.home) {
    case StepTensor::Home::kOperand:
      return {tensor.descriptor, tensor.index};
    case StepTensor::Home::kResult:
      return {tensor.descriptor,
              static_cast<BufferId>(kOperandCount) + tensor.index};
    case StepTensor::Home::kMaskedGradient:
      break;
  }
  return {tensor.descriptor, masked_};
}

Tensor Translator::PlaceSums(const Tensor& result, const Epilogue& epilogue) {
  if (!epilogue.needs_sums()) return result;
  const TensorDescriptor sums =
      PlainDescriptor(result.descriptor, DataType::kF32);
  return sums == result.descriptor ? result : NewTensor(sums, &schedule_);
}

void Translator::Add(const MaskStep& step) {
  masked_ = NewTensor(step.masked.descriptor, &schedule_).location;
  AddMask(Locate(step.gradient), Locate(step.output), Locate(step.masked),
          &schedule_);
}

void Translator::Add(const CopyStep& step) {
  Epilogue epilogue;
  epilogue.scale = step.scale;
  const Tensor result = Locate(step.to);
  const Tensor sums = PlaceSums(result, epilogue);
  AddReorder(Locate(step.from), sums, &schedule_);
  AddFinish({sums, result, epilogue, {}, {}}, &schedule_);
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
          AddBiasInF32(bias, operation_.problem.out_channels, &schedule_);
      epilogue.bias.reset();
    } else {
      pass.finish.bias = AddBiasInF32(bias, count, &schedule_).location;
    }
  }
  pass.finish.sums = PlaceSums(pass.finish.result, epilogue);
  if (epilogue.residual) {
    pass.finish.residual =
        InLayoutOf(pass.finish.sums, Locate(*epilogue.residual), &schedule_)
            .location;
  }
  pass.tensor(ResultOf(step.pass)) = pass.finish.sums;
}

void Translator::AppendImplementation(absl::string_view word) {
  absl::StrAppend(&implementation_, implementation_.empty() ? "" : " ", word);
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
      AppendImplementation(absl::StrCat(NameOf(pass.pass), "=half_depthwise"));
      const bool sums_bias = pass.pass == Pass::kBackwardWeight && bias_sum_ &&
                             bias_sum_->scale == 1 &&
                             IsPerChannel(operation_.problem, bias_sum_->bias);
      if (!sums_bias) continue;
      pass.bias = Locate(bias_sum_->bias);
      bias_sum_.reset();
    }
    AddF16Depthwise(*depthwise, passes_, options_.threads, &schedule_);
    for (const PlacedPass& pass : passes_) AddFinish(pass.finish, &schedule_);
    return absl::OkStatus();
  }
  std::vector<PassSpec> specs;
  for (const PlacedPass& pass : passes_) {
    specs.push_back(SpecOf(pass, *lowering_, options_, operation_.dtype(),
                           passes_.size() > 1));
  }
  ASSIGN_OR_RETURN(const std::vector<Candidate> chosen,
                   ChooseFormats(std::move(specs), preference_));
  for (size_t i = 0; i < passes_.size(); ++i) {
    AppendImplementation(absl::StrCat(NameOf(passes_[i].pass), "=",
                                      chosen[i].implementation, "/",
                                      NameOf(chosen[i].format)));
    RETURN_IF_ERROR(AddLibraryPass(passes_[i], *lowering_, chosen[i], &copies_,
                                   &schedule_));
    AddFinish(passes_[i].finish, &schedule_);
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
                 Locate(bias_sum_->bias), bias_sum_->scale, &schedule_);
  }
  if (implementation_.empty()) AppendImplementation("sum");
  return Guard("planning", [&]() -> absl::StatusOr<std::unique_ptr<Plan>> {
    return std::make_unique<ScheduledPlan>(Place(std::move(schedule_)),
                                           std::move(implementation_),
                                           options_.threads);
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Plan>> BuildConvPlan(
    const ConvOperation& operation, const ComputeOptions& options,
    const FormatPreference& preference) {
  return Translator(operation, options, preference).Translate();
}

}  // namespace convgrad::onednn
