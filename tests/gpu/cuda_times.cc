// Times whole backward operations of ResNet-50's layers on the GPU, copies from
// and to pageable and pinned host memory included:
//
//   cuda_times [RUNS]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "backends/cuda/cuda_backend.h"

namespace convgrad {
namespace {

constexpr int kSkipped = 77;

// He et al. 2015, table 1, batch 32.
constexpr const char* kLayers[] = {
    "conv2d_n32_c3_o64_i224_k7_s2_p3", "conv2d_n32_c64_o64_i56_k1",
    "conv2d_n32_c64_o64_i56_k3_p1",    "conv2d_n32_c64_o256_i56_k1",
    "conv2d_n32_c128_o128_i28_k3_p1",  "conv2d_n32_c256_o512_i56_k1_s2",
    "conv2d_n32_c256_o256_i14_k3_p1",  "conv2d_n32_c512_o512_i7_k3_p1",
    "conv2d_n32_c512_o2048_i7_k1",
};

constexpr int64_t kPage = 4096;

// Whole pages of zeros: times don't depend on values.
class Buffer {
 public:
  // `pinner` may be null.
  Buffer(int64_t bytes, MemoryPinner* pinner) : pinner_(pinner) {
    const int64_t whole = (bytes + kPage - 1) / kPage * kPage;
    data_ = std::aligned_alloc(kPage, whole);
    std::fill_n(static_cast<char*>(data_), whole, 0);
    if (pinner_ != nullptr && !pinner_->Pin(data_, whole)) pinner_ = nullptr;
  }
  Buffer(Buffer&& other) noexcept
      : pinner_(std::exchange(other.pinner_, nullptr)),
        data_(std::exchange(other.data_, nullptr)) {}
  ~Buffer() {
    if (pinner_ != nullptr) pinner_->Unpin(data_);
    std::free(data_);
  }
  void* data() const { return data_; }

 private:
  MemoryPinner* pinner_;
  void* data_;
};

// Medians in milliseconds.
struct Medians {
  double whole, compute;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

absl::StatusOr<Medians> TimeRuns(const Plan& plan,
                                 const ConvOperation& operation,
                                 MemoryPinner* pinner, int runs) {
  std::vector<Buffer> memory;
  RunBuffers buffers;
  for (size_t i = 0; i < kOperandCount; ++i) {
    if (!operation.operands[i]) continue;
    memory.emplace_back(*ByteSize(*operation.operands[i]), pinner);
    buffers.operands[i] = memory.back().data();
  }
  for (const ResultRequest& request : operation.results) {
    memory.emplace_back(*ByteSize(request.descriptor), pinner);
    buffers.results.push_back(memory.back().data());
  }
  std::vector<double> whole, compute;
  for (int run = -1; run < runs; ++run) {  // the first one warms up
    const absl::Time start = absl::Now();
    ASSIGN_OR_RETURN(const RunTimes times, plan.Run(buffers));
    if (run < 0) continue;
    whole.push_back(absl::ToDoubleMilliseconds(absl::Now() - start));
    compute.push_back(absl::ToDoubleMilliseconds(times.compute));
  }
  return Medians{Median(whole), Median(compute)};
}

absl::Status Time(const Backend& backend, const char* layer, DataType dtype,
                  int runs) {
  const ConvOperation operation =
      WholeOperation(*Parse(layer), Direction::kBackward, dtype, Layout::kNXC);
  ASSIGN_OR_RETURN(const auto plan, backend.MakePlan(operation, {}));
  ASSIGN_OR_RETURN(const Medians pageable,
                   TimeRuns(*plan, operation, nullptr, runs));
  const std::shared_ptr<MemoryPinner> pinner = backend.pinner();
  ASSIGN_OR_RETURN(const Medians pinned,
                   TimeRuns(*plan, operation, pinner.get(), runs));
  std::printf("| %-34s | %-4s | %8.3f | %8.3f | %8.3f | %s |\n", layer,
              std::string(NameOf(dtype)).c_str(), pageable.whole, pinned.whole,
              pinned.compute, std::string(plan->implementation()).c_str());
  return absl::OkStatus();
}

int Main(int runs) {
  const auto backend = MakeCudaBackend();
  if (!backend.ok()) {
    std::printf("skipped: %s\n", backend.status().ToString().c_str());
    return kSkipped;
  }
  std::printf(
      "| layer | dtype | pageable ms | pinned ms | of it on the device | "
      "engines "
      "|\n|---|---|--:|--:|--:|---|\n");
  for (DataType dtype : {DataType::kF32, DataType::kBF16, DataType::kF16}) {
    for (const char* layer : kLayers) {
      const absl::Status status = Time(**backend, layer, dtype, runs);
      if (status.ok()) continue;
      std::printf("%s: %s\n", layer, status.ToString().c_str());
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace convgrad

int main(int argc, char** argv) {
  return convgrad::Main(argc > 1 ? std::max(1, std::atoi(argv[1])) : 21);
}
