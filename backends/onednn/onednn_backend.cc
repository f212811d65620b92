#include "backends/onednn/onednn_backend.h"

#include "absl/strings/str_cat.h"
#include "backends/onednn/onednn_choices.h"
#include "backends/onednn/onednn_conv_plan.h"
#include "backends/onednn/onednn_threads.h"
#include "backends/onednn/onednn_tuning.h"
#include "backends/onednn/onednn_types.h"

namespace convgrad {
namespace {

absl::string_view IsaName(dnnl::cpu_isa isa) {
  switch (isa) {
    case dnnl::cpu_isa::sse41:
      return "sse41";
    case dnnl::cpu_isa::avx:
      return "avx";
    case dnnl::cpu_isa::avx2:
      return "avx2";
    case dnnl::cpu_isa::avx512_core:
      return "avx512_core";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "avx512_core_amx";
    default:
      return "other";
  }
}

std::string VersionText() {
  const dnnl_version_t* version = dnnl_version();
  return absl::StrCat(version->major, ".", version->minor, ".", version->patch);
}

class OnednnBackend final : public Backend {
 public:
  absl::string_view name() const override { return "onednn"; }

  BackendCapabilities capabilities() const override {
    BackendCapabilities capabilities;
    capabilities.version = VersionText();
    capabilities.description = "CPU";
    capabilities.cpu_features = {
        std::string(IsaName(dnnl::get_effective_cpu_isa()))};
    capabilities.results.assign(kAllResults.begin(), kAllResults.end());
    capabilities.dtypes = {DataType::kF32, DataType::kBF16, DataType::kF16};
    capabilities.layouts = {Layout::kNCX,       Layout::kNXC, Layout::kOIX,
                            Layout::kOXI,       Layout::kXIO, Layout::kNDC1HWC0,
                            Layout::kFractalZ3D};
    for (DataType dtype : capabilities.dtypes) {
      if (onednn::ComputeDtype(dtype) == dtype) {
        capabilities.native_dtypes.push_back(dtype);
      }
    }
    return capabilities;
  }

  absl::Status CheckSupport(const ConvOperation&) const override {
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<Plan>> MakePlan(
      const ConvOperation& operation,
      const PlanOptions& options) const override {
    RETURN_IF_ERROR(CheckSupport(operation));
    if (!options.deterministic) {
      RETURN_IF_ERROR(onednn::Tune(operation, options.threads,
                                   options.timing_bytes, &timed_));
    }
    // Timed on the spot counts for those who asked for it only.
    const auto find = [&](auto find_in) {
      if (!options.deterministic) {
        if (auto timed = find_in(timed_)) return timed;
      }
      return find_in(loaded_);
    };
    return onednn::MakeConvPlan(
        operation, options.threads,
        {[&](const onednn::PassSpec& pass) {
           return find([key = KeyOf(pass)](const onednn::Choices& choices) {
             return choices.FindFormat(key);
           });
         },
         [&](const ConvOperation& whole, int threads) {
           return find([key = onednn::KeyOf(whole, threads)](
                           const onednn::Choices& choices) {
             return choices.FindPartition(key);
           });
         }});
  }

  void ParallelFor(
      int threads, int64_t count,
      absl::FunctionRef<void(int64_t begin, int64_t end)> body) const override {
    onednn::UseThreads(threads);
    onednn::ParallelFor(
        threads, count, 1,
        [&](int, int64_t begin, int64_t end) { body(begin, end); });
  }

  // Measured on an EPYC 9004, rounded: ResNet-50's backwards.
  Rates rates(int threads) const override {
    const double f32 = 9e10 * threads;
    const bool native =
        onednn::ComputeDtype(DataType::kBF16) == DataType::kBF16;
    return {{f32, native ? 2 * f32 : f32, f32}, 0, absl::Microseconds(50)};
  }

  std::string tuning() const override { return timed_.ToText(); }
  absl::Status LoadTuning(absl::string_view tuning) override {
    return loaded_.AddText(tuning);
  }

 private:
  onednn::Choices loaded_;
  mutable onednn::Choices timed_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeOnednnBackend() {
  const dnnl_version_t* version = dnnl_version();
  if (version->major < 3 || (version->major == 3 && version->minor < 2)) {
    return MakeError(absl::StatusCode::kFailedPrecondition,
                     {Reason::kBackendUnavailable, "backend onednn",
                      VersionText(), "oneDNN 3.2 or later"});
  }
  std::unique_ptr<Backend> backend = std::make_unique<OnednnBackend>();
  RETURN_IF_ERROR(onednn::Guard("start", [] { onednn::CpuEngine(); }));
  return backend;
}

}  // namespace convgrad
