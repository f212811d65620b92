#include "backends/cuda/cuda_conv_plan.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backends/core/status.h"
#include "backends/core/steady_now.h"
#include "backends/cuda/cuda_conv_steps.h"

namespace convgrad::cuda {
namespace {

// Maximum number of slices, and minimum bytes that cross per slice. Estimates
// that were not measured on a GPU. (8 MiB take 0.3 ms on PCIe 4, a launch 0.005
// ms.)
constexpr int64_t kMaxSlices = 8;
constexpr int64_t kMinSliceBytes = int64_t{8} << 20;

// Approximate size of a plan's step with one graph.
constexpr int64_t kStepBytes = 64 << 10;

// Handles a batch of 0: the output and grad_input are empty, the sums are 0.
class ZeroPlan final : public Plan {
 public:
  explicit ZeroPlan(const ConvOperation& operation) {
    for (const ResultRequest& request : operation.results) {
      bytes_.push_back(*ByteSize(request.descriptor));
    }
  }

  absl::StatusOr<RunTimes> Run(const RunBuffers& buffers) const override {
    for (size_t i = 0; i < bytes_.size(); ++i) {
      if (bytes_[i] > 0) std::memset(buffers.results[i], 0, bytes_[i]);
    }
    return RunTimes();
  }
  int64_t scratch_bytes() const override { return 0; }
  int64_t resident_bytes() const override { return sizeof(*this); }
  absl::string_view implementation() const override { return "zero"; }

 private:
  std::vector<int64_t> bytes_;
};

bool IsSumOverBatch(const ConvProblem& problem, const ResultRequest& request) {
  return !IsCut(problem, request.which, request.descriptor.dims);
}

// Returns the layout of a weight or bias gradient; a bias of any rank becomes
// one row.
MappedTensor MapOfSum(const TensorDescriptor& tensor, int64_t groups) {
  if (IsWeightLayout(tensor.layout)) return MapOf(tensor, groups);
  return MapOf(
      TensorDescriptor{tensor.dtype, Layout::kNCX, {1, ElementCount(tensor)}},
      1);
}

// A result to which every slice adds, and how to finish it.
struct BatchSum {
  size_t index;
  MappedTensor addend;  // as the slices write it
  MappedTensor result;
  float scale;
  Location addend_at, sum_at;
};

class SlicedPlan final : public Plan {
 public:
  SlicedPlan(const ConvOperation& operation, int64_t slices, Worker* worker)
      : operation_(operation), worker_(worker) {
    shape_.slices = slices;
  }

  absl::Status Build(int64_t max_workspace_bytes);

  absl::StatusOr<RunTimes> Run(const RunBuffers& buffers) const override;
  // Scratch on the host; the lane owns the device's.
  int64_t scratch_bytes() const override { return 0; }
  int64_t resident_bytes() const override {
    return steps_.step_count() * kStepBytes;
  }
  absl::string_view implementation() const override { return implementation_; }

 private:
  void AddCrossings();
  void AddSums(const ConvOperation& slice);
  absl::Status Work(int64_t slice, const DeviceMemory& memory,
                    cudaStream_t stream) const;
  absl::Status AddUp(const BatchSum& sum, int64_t slice,
                     const DeviceMemory& memory, cudaStream_t stream) const;

  const ConvOperation operation_;
  Worker* const worker_;
  LaneShape shape_;
  StepList steps_;  // of one slice
  std::vector<BatchSum> sums_;
  std::string implementation_;
};

absl::Status SlicedPlan::Build(int64_t max_workspace_bytes) {
  const ConvOperation slice =
      shape_.slices == 1 ? operation_ : SliceOf(operation_, shape_.slices);
  {
    MutexLock lock(&worker_->mutex);
    const GraphPlanner planner{*worker_->target, max_workspace_bytes};
    ASSIGN_OR_RETURN(ConvSteps made, MakeConvSteps(slice, planner));
    steps_ = std::move(made.steps);
    implementation_ = std::move(made.implementation);
  }
  AddCrossings();
  if (shape_.slices > 1) AddSums(slice);
  shape_.scratch_bytes = steps_.scratch_bytes();
  return absl::OkStatus();
}

void SlicedPlan::AddCrossings() {
  const ConvProblem& problem = operation_.problem;
  for (Operand which : kAllOperands) {
    Crossing crossing;
    if (IsNeeded(operation_, which)) {
      const TensorDescriptor& tensor = *operation_.operand(which);
      crossing = {*ByteSize(tensor), IsCut(problem, which, tensor.dims)};
    }
    shape_.operands.push_back(crossing);
  }
  for (const ResultRequest& request : operation_.results) {
    shape_.results.push_back(
        {*ByteSize(request.descriptor), !IsSumOverBatch(problem, request)});
  }
}

void SlicedPlan::AddSums(const ConvOperation& slice) {
  const int64_t groups = operation_.problem.groups;
  for (size_t i = 0; i < operation_.results.size(); ++i) {
    const ResultRequest& request = operation_.results[i];
    if (!IsSumOverBatch(operation_.problem, request)) continue;
    const MappedTensor addend = MapOfSum(slice.results[i].descriptor, groups);
    const int64_t bytes = addend.size * ByteSizeOf(addend.dtype);
    sums_.push_back({i, addend, MapOfSum(request.descriptor, groups),
                     request.scale, steps_.Allocate(bytes),
                     steps_.Allocate(bytes)});
  }
}

absl::Status SlicedPlan::AddUp(const BatchSum& sum, int64_t slice,
                               const DeviceMemory& memory,
                               cudaStream_t stream) const {
  ElementwiseArguments add;
  add.extents = sum.addend.extents;
  add.from = {AddressOf(memory, sum.sum_at), DataType::kF32, sum.addend.map};
  add.residual = {AddressOf(memory, sum.addend_at), DataType::kF32,
                  sum.addend.map};
  add.to = AddressOf(memory, sum.sum_at);
  add.to_map = sum.addend.map;
  if (slice > 0) {
    RETURN_IF_ERROR(
        worker_->device->Check(LaunchElementwise(add, stream), "batch sum"));
  }
  if (slice + 1 < shape_.slices) return absl::OkStatus();
  void* const result = memory.results[sum.index];
  if (sum.result.has_gaps) {
    RETURN_IF_ERROR(worker_->device->Check(
        cudaMemsetAsync(result, 0,
                        sum.result.size * ByteSizeOf(sum.result.dtype), stream),
        "memory set"));
  }
  ElementwiseArguments finish;
  finish.extents = sum.addend.extents;
  finish.from = add.from;
  finish.scale = sum.scale;
  finish.to = result;
  finish.to_dtype = sum.result.dtype;
  finish.to_map = sum.result.map;
  return worker_->device->Check(LaunchElementwise(finish, stream), "batch sum");
}

absl::Status SlicedPlan::Work(int64_t slice, const DeviceMemory& memory,
                              cudaStream_t stream) const {
  DeviceMemory mine = memory;
  for (const BatchSum& sum : sums_) {
    mine.results[sum.index] =
        AddressOf(memory, slice == 0 ? sum.sum_at : sum.addend_at);
  }
  {
    MutexLock lock(&worker_->mutex);
    RETURN_IF_ERROR(
        steps_.Enqueue({worker_->device, worker_->target, &mine, stream}));
  }
  for (const BatchSum& sum : sums_) {
    RETURN_IF_ERROR(AddUp(sum, slice, memory, stream));
  }
  return absl::OkStatus();
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

bool IsCut(const ConvProblem& problem, Operand operand, const Dims& dims) {
  if (operand == Operand::kWeight) return false;
  if (operand != Operand::kBias) return true;
  return dims.size() == problem.axes.size() + 2 && dims[0] == problem.batch;
}

bool IsCut(const ConvProblem& problem, Result result, const Dims& dims) {
  if (result == Result::kGradWeight) return false;
  if (result != Result::kGradBias) return true;
  return IsCut(problem, Operand::kBias, dims);
}

int64_t SliceCount(const ConvOperation& operation) {
  // The slices of a weight gradient are in f32, which takes far longer than one
  // gradient in 16 bits.
  const ResultRequest* weight = operation.result(Result::kGradWeight);
  if (weight != nullptr && weight->descriptor.dtype != DataType::kF32) return 1;
  int64_t bytes = 0;
  const ConvProblem& problem = operation.problem;
  for (Operand which : kAllOperands) {
    if (!IsNeeded(operation, which)) continue;
    const TensorDescriptor& tensor = *operation.operand(which);
    if (IsCut(problem, which, tensor.dims)) bytes += *ByteSize(tensor);
  }
  for (const ResultRequest& request : operation.results) {
    if (!IsSumOverBatch(problem, request)) {
      bytes += *ByteSize(request.descriptor);
    }
  }
  int64_t slices = std::min(kMaxSlices, bytes / kMinSliceBytes);
  while (slices > 1 && problem.batch % slices != 0) --slices;
  return std::max<int64_t>(slices, 1);
}

ConvOperation SliceOf(const ConvOperation& operation, int64_t slices) {
  const ConvProblem& problem = operation.problem;
  ConvOperation slice = operation;
  for (Operand which : kAllOperands) {
    std::optional<TensorDescriptor>& tensor = slice.operand(which);
    if (tensor && IsCut(problem, which, tensor->dims)) {
      tensor->dims[0] /= slices;
    }
  }
  for (ResultRequest& request : slice.results) {
    TensorDescriptor& tensor = request.descriptor;
    if (!IsSumOverBatch(problem, request)) {
      tensor.dims[0] /= slices;
      continue;
    }
    request.scale = 1;
    tensor.dtype = DataType::kF32;
    if (IsWeightLayout(tensor.layout)) tensor.layout = Layout::kOIX;
  }
  slice.problem.batch /= slices;
  if (problem.bias && IsCut(problem, Operand::kBias, *problem.bias)) {
    (*slice.problem.bias)[0] /= slices;
  }
  return slice;
}

absl::StatusOr<std::unique_ptr<Plan>> MakeConvPlan(
    const ConvOperation& operation, int64_t max_workspace_bytes,
    Worker* worker) {
  if (operation.problem.batch == 0) {
    return std::make_unique<ZeroPlan>(operation);
  }
  auto plan =
      std::make_unique<SlicedPlan>(operation, SliceCount(operation), worker);
  RETURN_IF_ERROR(plan->Build(max_workspace_bytes));
  return plan;
}

}  // namespace convgrad::cuda
