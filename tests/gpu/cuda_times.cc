// Times whole backward operations of ResNet-50's layers on the GPU, copies from
// and to pageable host memory included:
//
//   cuda_times [RUNS]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
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

// 64-byte aligned zeros: times don't depend on values.
class Buffer {
 public:
  explicit Buffer(int64_t bytes)
      : data_(std::aligned_alloc(64, (bytes + 63) / 64 * 64)) {
    std::fill_n(static_cast<char*>(data_), bytes, 0);
  }
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)) {}
  ~Buffer() { std::free(data_); }
  void* data() const { return data_; }

 private:
  void* data_;
};

absl::Status Time(const Backend& backend, const char* layer, DataType dtype,
                  int runs) {
  const ConvOperation operation =
      WholeOperation(*Parse(layer), Direction::kBackward, dtype, Layout::kNXC);
  ASSIGN_OR_RETURN(const auto plan, backend.MakePlan(operation, {}));
  std::vector<Buffer> memory;
  RunBuffers buffers;
  for (size_t i = 0; i < kOperandCount; ++i) {
    if (!operation.operands[i]) continue;
    memory.emplace_back(*ByteSize(*operation.operands[i]));
    buffers.operands[i] = memory.back().data();
  }
  for (const ResultRequest& request : operation.results) {
    memory.emplace_back(*ByteSize(request.descriptor));
    buffers.results.push_back(memory.back().data());
  }
  std::vector<double> milliseconds;
  for (int run = -1; run < runs; ++run) {  // the first one warms up
    const absl::Time start = absl::Now();
    RETURN_IF_ERROR(plan->Run(buffers).status());
    const double took = absl::ToDoubleMilliseconds(absl::Now() - start);
    if (run >= 0) milliseconds.push_back(took);
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  std::printf("| %-34s | %-4s | %8.3f | %s |\n", layer,
              std::string(NameOf(dtype)).c_str(), milliseconds[runs / 2],
              std::string(plan->implementation()).c_str());
  return absl::OkStatus();
}

int Main(int runs) {
  const auto backend = MakeCudaBackend();
  if (!backend.ok()) {
    std::printf("skipped: %s\n", backend.status().ToString().c_str());
    return kSkipped;
  }
  std::printf("| layer | dtype | median ms | engines |\n|---|---|---|---|\n");
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
