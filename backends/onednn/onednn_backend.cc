#include "backends/onednn/onednn_backend.h"

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/program/conv_backend.h"
#include "backends/onednn/convolutions/onednn_conv_plan.h"
#include "backends/onednn/library/onednn_candidates.h"
#include "backends/onednn/library/onednn_cpu.h"
#include "backends/onednn/library/onednn_threads.h"
#include "backends/onednn/library/onednn_types.h"
#include "backends/onednn/networks/network_plan.h"

namespace convgrad {
namespace {

std::string VersionText() {
  const dnnl_version_t* version = dnnl_version();
  return absl::StrCat(version->major, ".", version->minor, ".", version->patch);
}

// Asks the library, which knows the instructions that it may use.
bool HasBf16() {
  onednn::PassSpec spec;
  spec.pass = Pass::kBackwardWeight;
  spec.problem = *Parse("conv2d_n1_c16_o16_i8_k1");
  spec.operand_dtype = DataType::kBF16;
  spec.data = {DataType::kBF16, {1, 16, 8, 8}, {1024, 64, 8, 1}, 0};
  spec.weight = {DataType::kBF16, {16, 16, 1, 1}, {16, 1, 1, 1}, 0};
  spec.out = spec.data;
  const auto candidates = onednn::ListCandidates(spec);
  return candidates.ok() && !candidates->empty();
}

class OnednnBackend final : public ConvBackend {
 public:
  OnednnBackend(bool native_bf16, bool bf16_channels_last)
      : native_bf16_(native_bf16), bf16_channels_last_(bf16_channels_last) {}

  absl::string_view name() const override { return "onednn"; }

  BackendCapabilities capabilities() const override {
    BackendCapabilities capabilities = EveryConvolution();
    capabilities.version = VersionText();
    capabilities.description = "CPU";
    capabilities.cpu_features = {std::string(onednn::InstructionSet())};
    for (DataType dtype : capabilities.dtypes) {
      if (onednn::ComputeDtype(dtype, {1, native_bf16_}) == dtype) {
        capabilities.native_dtypes.push_back(dtype);
      }
    }
    return capabilities;
  }

  absl::StatusOr<std::unique_ptr<Plan>> PlanConvolution(
      const ConvOperation& operation,
      const PlanOptions& options) const override {
    const onednn::ComputeOptions compute = {
        options.threads, native_bf16_ && !options.compute_in_f32};
    return onednn::MakeConvPlan(operation, compute, options.like);
  }

  absl::Status CheckProgram(const ProgramOperation& operation) const override {
    return onednn::CheckNetwork(operation);
  }

  int64_t planning_bytes(const Operation& operation) const override {
    const ProgramOperation* const program = AsProgram(operation);
    return program == nullptr ? 0 : onednn::NetworkPlanningBytes(*program);
  }

  absl::StatusOr<std::unique_ptr<Plan>> PlanProgram(
      const ProgramOperation& operation,
      const PlanOptions& options) const override {
    RETURN_IF_ERROR(onednn::CheckNetwork(operation));
    const bool native_bf16 = native_bf16_ && !options.compute_in_f32;
    const bool channels_last = native_bf16 && bf16_channels_last_ &&
                               operation.dtype() == DataType::kBF16;
    return onednn::MakeNetworkPlan(
        operation,
        {options.threads,
         channels_last ? onednn::kChannelsLast : onednn::ChannelsPerBlock(),
         native_bf16});
  }

  void ParallelFor(
      int threads, int64_t count,
      absl::FunctionRef<void(int64_t begin, int64_t end)> body) const override {
    onednn::UseThreads(threads);
    onednn::ParallelFor(
        threads, count, 1,
        [&](int, int64_t begin, int64_t end) { body(begin, end); });
  }

  // Rounded measurements of ResNet-50's backward passes on an EPYC 9004.
  Rates rates(int threads) const override {
    const double f32 = 9e10 * threads;
    return {
        {f32, native_bf16_ ? 2 * f32 : f32, f32}, 0, absl::Microseconds(50)};
  }

 private:
  const bool native_bf16_;
  const bool bf16_channels_last_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeOnednnBackend() {
  return MakeOnednnBackend(onednn::IsFasterInBf16(), onednn::HasTiles());
}

absl::StatusOr<std::unique_ptr<Backend>> MakeOnednnBackend(
    bool native_bf16, bool bf16_channels_last) {
  const dnnl_version_t* version = dnnl_version();
  if (version->major < 3 || (version->major == 3 && version->minor < 2)) {
    return FailedPrecondition(Reason::kBackendUnavailable, "backend onednn",
                              VersionText(), "oneDNN 3.2 or later");
  }
  RETURN_IF_ERROR(onednn::Guard("start", [] {
    onednn::CpuEngine();
    return absl::OkStatus();
  }));
  return std::make_unique<OnednnBackend>(native_bf16 && HasBf16(),
                                         bf16_channels_last);
}

}  // namespace convgrad
