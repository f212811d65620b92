// This program prints how fast one thread reorders 64 MiB tensors, compared
// with memcpy of the larger side. Both alternate. It prints the medians of each
// CPU time and of their ratio, so that other load disturbs little.
//
//   reorder_speed [TEXT [MIB]]
//
// TEXT selects the lines that contain it; MIB is another size of the tensors.
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "backends/core/physical_layout.h"
#include "backends/core/tensor_descriptor.h"
#include "backends/kernels/copies/reorder.h"

namespace convgrad {
namespace {

int64_t g_bytes = 64 << 20;  // Of the larger side, approximately.
constexpr int kRepetitions = 15;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<char, Free>;

// Returns memory whose pages are mapped.
Buffer MakeBuffer(int64_t bytes) {
  auto* memory =
      static_cast<char*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
  std::memset(memory, 1, bytes);
  return Buffer(memory);
}

double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec + now.tv_nsec * 1e-9;
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2,
                   values.end());
  return values[values.size() / 2];
}

std::string g_filter;

void Measure(const std::string& name, const Reorder& reorder,
             int64_t source_bytes, int64_t destination_bytes) {
  if (name.find(g_filter) == std::string::npos) return;
  const int64_t larger = std::max(source_bytes, destination_bytes);
  const Buffer source = MakeBuffer(source_bytes);
  const Buffer destination = MakeBuffer(destination_bytes);
  const Buffer from = MakeBuffer(larger), to = MakeBuffer(larger);
  std::vector<double> copies, reorders, ratios;
  const int64_t runs = std::max<int64_t>((16 << 20) / larger, 1);
  for (int i = 0; i < kRepetitions; ++i) {
    const double begin = ThreadSeconds();
    for (int64_t run = 0; run < runs; ++run) {
      std::memcpy(to.get(), from.get(), larger);
    }
    const double middle = ThreadSeconds();
    for (int64_t run = 0; run < runs; ++run) {
      reorder.Run(source.get(), destination.get());
    }
    const double end = ThreadSeconds();
    copies.push_back((middle - begin) / runs);
    reorders.push_back((end - middle) / runs);
    ratios.push_back(copies.back() / reorders.back());
  }
  std::printf("| %-52s | %8.3f | %8.3f | %5.0f %% |\n", name.c_str(),
              Median(copies) * 1e3, Median(reorders) * 1e3,
              100 * Median(ratios));
  std::fflush(stdout);
}

std::string ShortName(const TensorDescriptor& descriptor) {
  const std::string text = ToString(descriptor);
  return text.substr(0, text.find('['));
}

// Measures both directions. The larger side is scaled to g_bytes along the
// first axis of `dims`.
void MeasureBothWays(TensorDescriptor a, TensorDescriptor b) {
  const int64_t larger = std::max(*ByteSize(a), *ByteSize(b));
  const int64_t factor = std::max<int64_t>(g_bytes / larger, 1);
  a.dims[0] *= factor;
  b.dims[0] *= factor;
  const std::string dims = ToString(absl::MakeConstSpan(a.dims));
  Measure(absl::StrCat(ShortName(a), " -> ", ShortName(b), " ", dims),
          Reorder::Make(a, b), *ByteSize(a), *ByteSize(b));
  Measure(absl::StrCat(ShortName(b), " -> ", ShortName(a), " ", dims),
          Reorder::Make(b, a), *ByteSize(b), *ByteSize(a));
}

void MeasureActivations(const Dims& dims) {
  struct Case {
    DataType plain, blocked;
    int64_t c0;
  };
  const Case cases[] = {{DataType::kF32, DataType::kF32, 8},
                        {DataType::kF32, DataType::kF32, 16},
                        {DataType::kBF16, DataType::kBF16, 16},
                        {DataType::kF16, DataType::kF16, 16},
                        {DataType::kF32, DataType::kF16, 16},
                        {DataType::kF32, DataType::kBF16, 16},
                        {DataType::kF16, DataType::kF32, 16}};
  for (Layout layout : {Layout::kNCX, Layout::kNXC}) {
    for (const Case& c : cases) {
      MeasureBothWays({c.plain, layout, dims},
                      {c.blocked, Layout::kNDC1HWC0, dims, c.c0});
    }
  }
}

void MeasureWeights(const Dims& kernel) {
  Dims dims = {64, 256};
  dims.insert(dims.end(), kernel.begin(), kernel.end());
  for (const auto& [dtype, c0] : std::vector<std::pair<DataType, int64_t>>{
           {DataType::kF32, 8}, {DataType::kF32, 16}, {DataType::kBF16, 16}}) {
    MeasureBothWays({dtype, Layout::kOIX, dims},
                    {dtype, Layout::kFractalZ3D, dims, c0});
  }
  MeasureBothWays({DataType::kF32, Layout::kOIX, dims},
                  {DataType::kF16, Layout::kFractalZ3D, dims, 16});
}

// Measures oneDNN's nCx16c in f32, from and to f16.
void MeasureChannelBlocked(const Dims& dims) {
  const TensorDescriptor half = {DataType::kF16, Layout::kNCX, dims};
  const int64_t wide_bytes = 2 * *ByteSize(half);
  const PhysicalLayout plain = PhysicalLayoutOf(half);
  const PhysicalLayout blocked = ChannelBlocked(dims, 16);
  const std::string text = ToString(absl::MakeConstSpan(dims));
  Measure(absl::StrCat("f16:NCX -> f32:nCx16c ", text),
          Reorder::Make(plain, DataType::kF16, blocked, DataType::kF32),
          wide_bytes / 2, wide_bytes);
  Measure(absl::StrCat("f32:nCx16c -> f16:NCX ", text),
          Reorder::Make(blocked, DataType::kF32, plain, DataType::kF16),
          wide_bytes, wide_bytes / 2);
}

void MeasureAll() {
  std::printf("| %-52s | %8s | %8s | %7s |\n", "reorder", "copy ms", "ms",
              "speed");
  std::printf("|%s|---------:|---------:|--------:|\n",
              std::string(54, '-').c_str());
  MeasureActivations({1, 64, 56, 56});
  MeasureActivations({1, 64, 16, 32, 32});
  MeasureWeights({1, 1});
  MeasureWeights({3, 3});
  MeasureWeights({3, 3, 3});
  MeasureChannelBlocked({84, 64, 56, 56});
  MeasureChannelBlocked({16, 64, 16, 32, 32});
}

}  // namespace
}  // namespace convgrad

int main(int argc, char** argv) {
  if (argc > 1) convgrad::g_filter = argv[1];
  if (argc > 2) convgrad::g_bytes = std::atof(argv[2]) * (1 << 20);
  convgrad::MeasureAll();
}
