#include "backends/cuda/cuda_conv_plan.h"

#include <algorithm>
#include <utility>

#include "backends/core/batch_slices.h"
#include "backends/core/checked_math.h"
#include "backends/core/status.h"
#include "backends/core/steady_now.h"
#include "backends/cuda/cuda_conv_steps.h"
#include "backends/cuda/cuda_kernel_steps.h"

namespace convgrad::cuda {
namespace {

// Maximum number of slices, and minimum bytes that cross per slice. Estimates
// that were not measured on a GPU. (8 MiB take 0.3 ms on PCIe 4, a launch 0.005
// ms.)
constexpr int64_t kMaxSlices = 8;
constexpr int64_t kMinSliceBytes = int64_t{8} << 20;

// Approximate size of a plan's step with one graph.
constexpr int64_t kStepBytes = 64 << 10;

std::vector<Crossing> CrossingsOf(const TensorUses& uses) {
  std::vector<Crossing> crossings;
  for (const TensorUse& use : uses) {
    crossings.push_back(
        {use.tensor == nullptr ? 0 : *ByteSize(*use.tensor), use.has_batch});
  }
  return crossings;
}

// Returns the layout of a weight or bias gradient; a bias of any rank becomes
// one row.
MappedTensor MapOfSum(const TensorDescriptor& tensor, int64_t groups) {
  if (IsWeightLayout(tensor.layout)) return MapOf(tensor, groups);
  return MapOf(
      TensorDescriptor{tensor.dtype, Layout::kNCX, {1, ElementCount(tensor)}},
      1);
}

// A result to which every slice adds. The first slice writes the sum, the
// others addends.
struct BatchSum {
  size_t index;
  Location sum, addend;
};

class SlicedPlan final : public Plan {
 public:
  SlicedPlan(const ConvOperation& operation, int64_t slices, Worker* worker)
      : operation_(operation), worker_(worker) {
    shape_.slices = slices;
  }

  absl::Status Build();

  absl::StatusOr<RunTimes> Run(const RunBuffers& buffers) const override;
  // Scratch on the host; the lane owns the device's.
  int64_t scratch_bytes() const override { return 0; }
  int64_t resident_bytes() const override {
    return steps_.step_count() * kStepBytes;
  }
  absl::string_view implementation() const override { return implementation_; }

 private:
  void AddSums(const ConvOperation& slice);
  absl::Status Work(int64_t slice, const DeviceMemory& memory,
                    cudaStream_t stream) const;

  const ConvOperation operation_;
  Worker* const worker_;
  LaneShape shape_;
  StepList steps_;  // of one slice
  // Add a slice's addends to the sums, and write the results from the sums.
  StepList add_, finish_;
  std::vector<BatchSum> sums_;
  std::string implementation_;
};

absl::Status SlicedPlan::Build() {
  ConvOperation slice = operation_;
  if (shape_.slices > 1) {
    slice = *AsConvolution(
        *operation_.WithBatch(operation_.batch() / shape_.slices));
  }
  {
    MutexLock lock(&worker_->mutex);
    ASSIGN_OR_RETURN(ConvSteps made, MakeConvSteps(slice, *worker_->target));
    steps_ = std::move(made.steps);
    implementation_ = std::move(made.implementation);
  }
  shape_.operands = CrossingsOf(operation_.OperandUses());
  shape_.results = CrossingsOf(operation_.ResultUses());
  if (shape_.slices > 1) AddSums(slice);
  shape_.scratch_bytes = steps_.scratch_bytes();
  return absl::OkStatus();
}

void SlicedPlan::AddSums(const ConvOperation& slice) {
  const int64_t groups = operation_.problem.groups;
  for (size_t i = 0; i < operation_.results.size(); ++i) {
    if (shape_.results[i].is_cut) continue;
    const ResultRequest& request = operation_.results[i];
    const MappedTensor map = MapOfSum(slice.results[i].descriptor, groups);
    const int64_t bytes = map.size * ByteSizeOf(map.dtype);
    const Elements sum{map, steps_.Allocate(bytes)};
    const Elements addend{map, steps_.Allocate(bytes)};
    const Elements result{MapOfSum(request.descriptor, groups),
                          {Location::Area::kResult, static_cast<int>(i)}};
    AddElementwise(sum, sum, {.residual = addend}, &add_);
    AddElementwise(sum, result, {.scale = request.scale}, &finish_);
    sums_.push_back({i, sum.location, addend.location});
  }
}

absl::Status SlicedPlan::Work(int64_t slice, const DeviceMemory& memory,
                              cudaStream_t stream) const {
  DeviceMemory mine = memory;
  for (const BatchSum& sum : sums_) {
    mine.results[sum.index] =
        AddressOf(memory, slice == 0 ? sum.sum : sum.addend);
  }
  MutexLock lock(&worker_->mutex);
  StepList::Context context{worker_->device, worker_->target, &mine, stream};
  RETURN_IF_ERROR(steps_.Enqueue(context));
  context.memory = &memory;
  if (slice > 0) RETURN_IF_ERROR(add_.Enqueue(context));
  if (slice + 1 < shape_.slices) return absl::OkStatus();
  return finish_.Enqueue(context);
}

absl::StatusOr<RunTimes> SlicedPlan::Run(const RunBuffers& buffers) const {
  const absl::Time start = SteadyNow();
  const HostMemory host{{buffers.operands.begin(), buffers.operands.end()},
                        buffers.results};
  RunTimes times;
  ASSIGN_OR_RETURN(
      times.compute,
      worker_->lane->Run(
          shape_, host,
          [this](int64_t slice, const DeviceMemory& memory,
                 cudaStream_t stream) { return Work(slice, memory, stream); }));
  times.transfer =
      std::max(SteadyNow() - start - times.compute, absl::ZeroDuration());
  for (const auto* crossings : {&shape_.operands, &shape_.results}) {
    for (const Crossing& crossing : *crossings) {
      times.transferred_bytes += crossing.bytes;
    }
  }
  return times;
}

}  // namespace

int64_t SliceCount(const ConvOperation& operation) {
  // The slices of a weight gradient are in f32, which takes far longer than one
  // gradient in 16 bits.
  const ResultRequest* weight = operation.result(Result::kGradWeight);
  if (weight != nullptr && weight->descriptor.dtype != DataType::kF32) return 1;
  const int64_t batch = operation.batch();
  const int64_t bytes = SaturatingMul(batch, ItemBytes(operation));
  int64_t slices = std::min(kMaxSlices, bytes / kMinSliceBytes);
  while (slices > 1 && batch % slices != 0) --slices;
  return std::max<int64_t>(slices, 1);
}

absl::StatusOr<std::unique_ptr<Plan>> MakeConvPlan(
    const ConvOperation& operation, Worker* worker) {
  auto plan =
      std::make_unique<SlicedPlan>(operation, SliceCount(operation), worker);
  RETURN_IF_ERROR(plan->Build());
  return plan;
}

}  // namespace convgrad::cuda
