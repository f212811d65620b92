// This program times whole backward operations of ResNet-50's layers on the
// GPU, from and to pageable and pinned host memory. It compares them with the
// times of their parts alone: the transfers, cuDNN, and PyTorch's backward if
// its times are given.
//
//   cuda_times [RUNS] [PYTORCH_TIMES]   a table, and geometric means below it
//   cuda_times layers                   the layers' names, for torch_times.py
//
// All results are in the operands' dtype, as in PyTorch; 16 bits in channels
// last, f32 in channels first, weights likewise.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "backends/cuda/cuda_backend.h"
#include "tests/gpu/cuda_floor.h"

namespace convgrad {
namespace {

constexpr int kSkipped = 77;

// The layers are those of He et al. 2015, table 1, at batch 32.
constexpr const char* kLayers[] = {
    "conv2d_n32_c3_o64_i224_k7_s2_p3", "conv2d_n32_c64_o64_i56_k1",
    "conv2d_n32_c64_o64_i56_k3_p1",    "conv2d_n32_c64_o256_i56_k1",
    "conv2d_n32_c128_o128_i28_k3_p1",  "conv2d_n32_c256_o512_i56_k1_s2",
    "conv2d_n32_c256_o256_i14_k3_p1",  "conv2d_n32_c512_o512_i7_k3_p1",
    "conv2d_n32_c512_o2048_i7_k1",
};

double Milliseconds(absl::Duration time) {
  return absl::ToDoubleMilliseconds(time);
}

// The operation's tensors in host memory of one kind. They are zeros, because
// values hardly change times; PyTorch's are zeros as well.
class HostTensors {
 public:
  // Returns new memory; null if there is none.
  using Allocate = std::function<std::shared_ptr<void>(int64_t bytes)>;

  static absl::StatusOr<HostTensors> Make(const ConvOperation& operation,
                                          const Allocate& allocate) {
    HostTensors made;
    const auto add = [&](const TensorDescriptor& tensor,
                         std::vector<CudaFloor::HostBuffer>* list) {
      const int64_t bytes = *ByteSize(tensor);
      void* const data = made.memory_.emplace_back(allocate(bytes)).get();
      if (data != nullptr) std::memset(data, 0, bytes);
      list->push_back({data, bytes});
      return data;
    };
    for (size_t i = 0; i < kOperandCount; ++i) {
      if (!operation.operands[i]) continue;
      made.buffers.operands[i] = add(*operation.operands[i], &made.operands);
    }
    for (const ResultRequest& request : operation.results) {
      made.buffers.results.push_back(add(request.descriptor, &made.results));
    }
    for (const auto& memory : made.memory_) {
      if (memory == nullptr) return absl::ResourceExhaustedError("host memory");
    }
    return made;
  }

  RunBuffers buffers{kOperandCount};
  std::vector<CudaFloor::HostBuffer> operands, results;

 private:
  std::vector<std::shared_ptr<void>> memory_;
};

// Median times of runs.
struct RunMedians {
  absl::Duration whole, device;
};

absl::StatusOr<RunMedians> TimeRuns(const Plan& plan, const RunBuffers& buffers,
                                    int runs) {
  std::vector<absl::Duration> whole, device;
  for (int run = -1; run < runs; ++run) {  // The first run warms up.
    const absl::Time start = absl::Now();
    ASSIGN_OR_RETURN(const RunTimes times, plan.Run(buffers));
    if (run < 0) continue;
    whole.push_back(absl::Now() - start);
    device.push_back(times.compute);
  }
  return RunMedians{Median(std::move(whole)), Median(std::move(device))};
}

ConvOperation Operation(const char* layer, DataType dtype) {
  const bool last = dtype != DataType::kF32;
  ConvOperation operation =
      WholeOperation(*Parse(layer), Direction::kBackward, dtype,
                     last ? Layout::kNXC : Layout::kNCX);
  const Layout weights = last ? Layout::kOXI : Layout::kOIX;
  operation.operand(Operand::kWeight)->layout = weights;
  for (ResultRequest& request : operation.results) {
    request.descriptor.dtype = dtype;
    if (request.which == Result::kGradWeight) {
      request.descriptor.layout = weights;
    }
  }
  return operation;
}

// The times of one layer in one dtype.
struct Row {
  RunMedians pageable, pinned;
  absl::Duration upload, download, cudnn;
  std::optional<absl::Duration> pytorch;

  double EndToEnd() const {
    return absl::FDivDuration(pinned.whole,
                              std::max({upload, pinned.device, download}));
  }
  double ToCudnn() const { return absl::FDivDuration(pinned.device, cudnn); }
};

absl::StatusOr<Row> TimeLayer(const ConvOperation& operation, const Plan& plan,
                              CudaFloor* floor, int runs) {
  Row row;
  {
    ASSIGN_OR_RETURN(const HostTensors pageable,
                     HostTensors::Make(operation, [](int64_t bytes) {
                       return std::shared_ptr<void>(std::malloc(bytes),
                                                    std::free);
                     }));
    ASSIGN_OR_RETURN(row.pageable, TimeRuns(plan, pageable.buffers, runs));
  }
  ASSIGN_OR_RETURN(const HostTensors pinned,
                   HostTensors::Make(operation, [&](int64_t bytes) {
                     return floor->AllocatePinned(bytes);
                   }));
  ASSIGN_OR_RETURN(row.pinned, TimeRuns(plan, pinned.buffers, runs));
  ASSIGN_OR_RETURN(row.upload, floor->TimeUpload(pinned.operands, runs));
  ASSIGN_OR_RETURN(row.download, floor->TimeDownload(pinned.results, runs));
  ASSIGN_OR_RETURN(row.cudnn, floor->TimeGraphs(operation));
  return row;
}

// Times by "LAYER DTYPE".
using PytorchTimes = std::map<std::string, absl::Duration>;

// Reads the lines of torch_times.py if the file exists: LAYER DTYPE
// MILLISECONDS.
PytorchTimes ReadTimes(const char* path) {
  PytorchTimes times;
  std::ifstream file(path);
  std::string layer, dtype;
  double milliseconds = 0;
  while (file >> layer >> dtype >> milliseconds) {
    times[absl::StrCat(layer, " ", dtype)] = absl::Milliseconds(milliseconds);
  }
  return times;
}

class GeometricMean {
 public:
  void Add(double ratio) {
    logarithms_ += std::log(ratio);
    ++count_;
  }
  std::string Text() const {
    if (count_ == 0) return "not measured";
    return absl::StrCat(std::exp(logarithms_ / count_), " of ", count_);
  }

 private:
  double logarithms_ = 0;
  int count_ = 0;
};

class Table {
 public:
  Table() {
    std::printf(
        "| layer | dtype | pageable ms | pinned ms | upload | device | "
        "download | pinned / slowest part | cuDNN | device / cuDNN | PyTorch | "
        "device / PyTorch | engines |\n"
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n");
  }

  void Add(const char* layer, DataType dtype, const Row& row,
           absl::string_view engines) {
    end_to_end_.Add(row.EndToEnd());
    to_cudnn_.Add(row.ToCudnn());
    std::string pytorch = "| |";
    if (row.pytorch) {
      const double ratio = absl::FDivDuration(row.pinned.device, *row.pytorch);
      to_pytorch_.Add(ratio);
      pytorch = absl::StrCat("| ", Milliseconds(*row.pytorch), " | ", ratio);
    }
    std::printf(
        "| %s | %s | %.3f | %.3f | %.3f | %.3f | %.3f | %.2f | %.3f | %.2f %s "
        "| %s |\n",
        layer, std::string(NameOf(dtype)).c_str(),
        Milliseconds(row.pageable.whole), Milliseconds(row.pinned.whole),
        Milliseconds(row.upload), Milliseconds(row.pinned.device),
        Milliseconds(row.download), row.EndToEnd(), Milliseconds(row.cudnn),
        row.ToCudnn(), pytorch.c_str(), std::string(engines).c_str());
    std::fflush(stdout);
  }

  void PrintMeans() const {
    std::printf(
        "\ngeometric means: pinned / slowest of upload, device and download: "
        "%s (wanted: 1.15 at most)\n"
        "  device / cuDNN alone: %s\n"
        "  device / PyTorch: %s (wanted: 1.05 at most)\n",
        end_to_end_.Text().c_str(), to_cudnn_.Text().c_str(),
        to_pytorch_.Text().c_str());
  }

 private:
  GeometricMean end_to_end_, to_cudnn_, to_pytorch_;
};

bool CanPin(MemoryPinner* pinner) {
  constexpr int64_t kPage = 4096, kBytes = 1024 * kPage;
  const std::unique_ptr<void, decltype(&std::free)> memory(
      std::aligned_alloc(kPage, kBytes), &std::free);
  if (!pinner->Pin(memory.get(), kBytes)) return false;
  pinner->Unpin(memory.get());
  return true;
}

absl::Status PrintTimes(const Backend& backend, int runs,
                        const PytorchTimes& pytorch) {
  ASSIGN_OR_RETURN(const std::unique_ptr<CudaFloor> floor, CudaFloor::Make());
  std::printf("the server's way to pin memory %s here\n\n",
              CanPin(backend.pinner().get()) ? "works" : "DOESN'T WORK");
  Table table;
  for (DataType dtype : {DataType::kBF16, DataType::kF16, DataType::kF32}) {
    for (const char* layer : kLayers) {
      const ConvOperation operation = Operation(layer, dtype);
      ASSIGN_OR_RETURN(const auto plan, backend.MakePlan(operation, {}));
      ASSIGN_OR_RETURN(Row row, TimeLayer(operation, *plan, floor.get(), runs));
      const auto known = pytorch.find(absl::StrCat(layer, " ", NameOf(dtype)));
      if (known != pytorch.end()) row.pytorch = known->second;
      table.Add(layer, dtype, row, plan->implementation());
    }
  }
  table.PrintMeans();
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "layers") == 0) {
    for (const char* layer : kLayers) std::puts(layer);
    return 0;
  }
  const auto backend = MakeCudaBackend();
  if (absl::IsFailedPrecondition(backend.status())) {
    std::printf("skipped: %s\n",
                std::string(backend.status().message()).c_str());
    return kSkipped;
  }
  absl::Status status = backend.status();
  if (status.ok()) {
    const int runs = argc > 1 ? std::max(1, std::atoi(argv[1])) : 21;
    status = PrintTimes(**backend, runs,
                        argc > 2 ? ReadTimes(argv[2]) : PytorchTimes());
  }
  if (!status.ok()) std::printf("%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace convgrad

int main(int argc, char** argv) { return convgrad::Main(argc, argv); }
