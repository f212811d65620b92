// This program prints the time of one thread for the kernels of networks, on
// activations of ResNet-50 at batch 16, and over_memcpy: the ratio to a memcpy
// that reads and writes as many bytes. Kernel and memcpy alternate, and CPU
// time is measured, so that other load disturbs little.
//
// The flags are those of Google Benchmark, e.g. --benchmark_filter=BatchNorm.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/kernels/operators/batch_norm.h"
#include "backends/kernels/operators/combine.h"
#include "backends/kernels/operators/pointwise.h"
#include "backends/kernels/operators/windows/pooling.h"
#include "benchmark/benchmark.h"

namespace convgrad {
namespace {

// Memory with the alignment of a plan's buffers.
class Buffer {
 public:
  Buffer(int64_t count, float value)
      : memory_(static_cast<float*>(
            std::aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64))) {
    std::fill_n(memory_.get(), count, value);
  }
  float* data() { return memory_.get(); }

 private:
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  std::unique_ptr<float, Free> memory_;
};

void OneThread(int64_t count, absl::FunctionRef<void(int64_t)> body) {
  for (int64_t part = 0; part < count; ++part) body(part);
}

double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         static_cast<double>(now.tv_nsec) * 1e-9;
}

// A kernel and the bytes that it reads and writes.
struct Work {
  int64_t bytes;
  std::function<void()> run;
};

void Measure(benchmark::State& state, const Work& work) {
  const std::vector<char> from(work.bytes / 2, 1);
  std::vector<char> to(work.bytes / 2);
  std::vector<double> ratios;
  for (auto _ : state) {
    const double begin = ThreadSeconds();
    std::memcpy(to.data(), from.data(), to.size());
    benchmark::ClobberMemory();
    const double middle = ThreadSeconds();
    work.run();
    benchmark::ClobberMemory();
    const double end = ThreadSeconds();
    state.SetIterationTime(end - middle);
    ratios.push_back((end - middle) / (middle - begin));
  }
  std::nth_element(ratios.begin(), ratios.begin() + ratios.size() / 2,
                   ratios.end());
  state.counters["over_memcpy"] = ratios[ratios.size() / 2];
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) *
                          work.bytes);
}

// The operands and results of all kernels, for one shape.
struct Tensors {
  explicit Tensors(const ChannelBlocks& shape)
      : blocks(shape),
        a(shape.size(), 0.5f),
        b(shape.size(), 1.5f),
        c(shape.size(), 1),
        y(shape.size(), 1),
        z(shape.size(), 1),
        chosen(shape.size()),
        mean(shape.padded_channels()),
        variance(shape.padded_channels(), 1),
        sums(2 * shape.padded_channels()),
        scratch(BatchNormScratch(shape)) {}

  BatchNorm norm() {
    return {.blocks = blocks,
            .mean = mean.data(),
            .variance = variance.data(),
            .scratch = scratch.data()};
  }
  BatchNormSums norm_sums() {
    return {sums.data(), sums.data() + blocks.padded_channels()};
  }

  ChannelBlocks blocks;
  Buffer a, b, c, y, z;
  std::vector<int32_t> chosen;
  std::vector<double> mean, variance, sums, scratch;
};

using MakeWork = Work (*)(Tensors&);

Work Statistics(Tensors& t) {
  return {t.blocks.bytes(), [&] {
            BatchNormStatistics(t.blocks, t.a.data(), t.scratch.data(),
                                OneThread, {t.mean.data(), t.variance.data()});
          }};
}

Work NormRelu(Tensors& t) {
  return {
      2 * t.blocks.bytes(), [&] {
        RunForward(
            t.norm(),
            {.x = t.a.data(), .activation = Activation::kRelu, .y = t.y.data()},
            OneThread);
      }};
}

Work NormAddRelu(Tensors& t) {
  return {3 * t.blocks.bytes(), [&] {
            RunForward(t.norm(),
                       {.x = t.a.data(),
                        .addend = t.b.data(),
                        .activation = Activation::kRelu,
                        .y = t.y.data()},
                       OneThread);
          }};
}

Work GradientSums(Tensors& t) {
  return {2 * t.blocks.bytes(), [&] {
            RunGradientSums(t.norm(),
                            {.dy = t.a.data(),
                             .x = t.b.data(),
                             .activation = Activation::kRelu},
                            OneThread, t.norm_sums());
          }};
}

Work GradientSumsAndAddend(Tensors& t) {
  return {5 * t.blocks.bytes(), [&] {
            RunGradientSums(t.norm(),
                            {.dy = t.a.data(),
                             .x = t.b.data(),
                             .y = t.c.data(),
                             .more_dy = t.y.data(),
                             .masked_dy = t.z.data()},
                            OneThread, t.norm_sums());
          }};
}

Work GradientInput(Tensors& t) {
  return {3 * t.blocks.bytes(), [&] {
            RunGradientInput(t.norm(),
                             {.dy = t.a.data(),
                              .x = t.b.data(),
                              .activation = Activation::kRelu,
                              .dx = t.y.data()},
                             t.norm_sums(), OneThread);
          }};
}

Work NormReluThenStatistics(Tensors& t) {
  return {
      4 * t.blocks.bytes(), [&] {
        RunForward(
            t.norm(),
            {.x = t.a.data(), .activation = Activation::kRelu, .y = t.y.data()},
            OneThread);
        BatchNormStatistics(t.blocks, t.y.data(), t.scratch.data(), OneThread,
                            {t.mean.data(), t.variance.data()});
      }};
}

Work AddRelu(Tensors& t) {
  return {3 * t.blocks.bytes(), [&] {
            Combine(t.blocks, Combination::kAddRelu,
                    {.a = t.a.data(), .b = t.b.data(), .y = t.y.data()},
                    OneThread);
          }};
}

Work Accumulate(Tensors& t) {
  return {3 * t.blocks.bytes(), [&] {
            Combine(t.blocks, Combination::kAdd,
                    {.a = t.a.data(), .b = t.b.data(), .y = t.a.data()},
                    OneThread);
          }};
}

Work ReluGradient(Tensors& t) {
  return {3 * t.blocks.bytes(), [&] {
            RunActivateGradient(t.blocks, {Activation::kRelu},
                                {t.a.data(), t.b.data(), t.y.data()},
                                OneThread);
          }};
}

Work Silu(Tensors& t) {
  return {2 * t.blocks.bytes(), [&] {
            Activate(t.blocks, {Activation::kSilu}, t.a.data(), t.y.data(),
                     OneThread);
          }};
}

// A pooling of 3x3 with stride 2, and its number of output positions.
struct Pool {
  explicit Pool(const ChannelBlocks& blocks) {
    const auto side = std::lround(std::sqrt(blocks.spatial));
    const PoolWindow window{side, 3, 2, 1, 1, 1, (side + 1) / 2};
    lists = PoolLists::Of({WindowLists(window), WindowLists(window)});
    global = PoolLists::Of({AdaptiveLists(side, 1), AdaptiveLists(side, 1)});
    transposed = lists.Transposed();
    results = blocks;
    results.spatial = lists.out();
  }
  PoolLists lists = PoolLists::Of({}), global = lists, transposed = lists;
  ChannelBlocks results;
};

Work MaxPool(Tensors& t) {
  auto pool = std::make_shared<Pool>(t.blocks);
  const int64_t positions = pool->results.size() * 4;
  return {t.blocks.bytes() + pool->results.bytes() + positions, [&t, pool] {
            PoolMax({t.blocks, &pool->lists}, t.a.data(), t.y.data(),
                    t.chosen.data(), OneThread);
          }};
}

Work MaxPoolGradient(Tensors& t) {
  auto pool = std::make_shared<Pool>(t.blocks);
  PoolMax({t.blocks, &pool->lists}, t.a.data(), t.y.data(), t.chosen.data(),
          OneThread);
  const int64_t positions = pool->results.size() * 4;
  return {t.blocks.bytes() + pool->results.bytes() + positions, [&t, pool] {
            PoolMaxGradient(
                t.blocks,
                {&pool->transposed, t.chosen.data(), t.b.data(), t.y.data()},
                OneThread);
          }};
}

Work AveragePool(Tensors& t) {
  auto pool = std::make_shared<Pool>(t.blocks);
  return {t.blocks.bytes() + pool->results.bytes(), [&t, pool] {
            PoolWeighted({t.blocks, &pool->lists}, t.a.data(), t.y.data(),
                         OneThread);
          }};
}

Work GlobalPool(Tensors& t) {
  auto pool = std::make_shared<Pool>(t.blocks);
  return {t.blocks.bytes(), [&t, pool] {
            PoolWeighted({t.blocks, &pool->global}, t.a.data(), t.y.data(),
                         OneThread);
          }};
}

struct Named {
  const char* name;
  MakeWork make;
};

constexpr Named kKernels[] = {
    {"BatchNormStatistics", Statistics},
    {"BatchNormRelu", NormRelu},
    {"BatchNormAddRelu", NormAddRelu},
    {"BatchNormReluThenStatistics", NormReluThenStatistics},
    {"BatchNormGradientSums", GradientSums},
    {"BatchNormGradientInput", GradientInput},
    {"BatchNormGradientSumsAndAddend", GradientSumsAndAddend},
    {"AddRelu", AddRelu},
    {"Accumulate", Accumulate},
    {"ReluGradient", ReluGradient},
    {"Silu", Silu},
    {"MaxPool", MaxPool},
    {"MaxPoolGradient", MaxPoolGradient},
    {"AveragePool", AveragePool},
    {"GlobalPool", GlobalPool},
};

void Register(const Named& kernel, const ChannelBlocks& blocks) {
  const std::string layout = blocks.block == blocks.channels
                                 ? "last"
                                 : absl::StrCat("by", blocks.block);
  const std::string name =
      absl::StrCat(kernel.name, "/", NameOf(blocks.dtype), "/", layout, "/",
                   blocks.channels, "x", blocks.spatial);
  benchmark::RegisterBenchmark(name.c_str(),
                               [kernel, blocks](benchmark::State& state) {
                                 Tensors tensors(blocks);
                                 Measure(state, kernel.make(tensors));
                               })
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

void RegisterAll() {
  for (const Named& kernel : kKernels) {
    for (const auto& [channels, side] : std::vector<std::pair<int, int>>{
             {64, 112}, {256, 56}, {1024, 14}, {2048, 7}}) {
      for (int64_t block : {16, channels}) {
        for (DataType dtype : {DataType::kF32, DataType::kBF16}) {
          Register(kernel, {16, channels, side * side, block, dtype});
        }
      }
    }
  }
}

}  // namespace
}  // namespace convgrad

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  convgrad::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
