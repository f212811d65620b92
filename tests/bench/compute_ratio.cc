// Prints, per problem, the backend's time beside oneDNN called directly for the
// same operation, layouts, threads and pinning, interleaved in one process.
//
//   compute_ratio [--dtype=f32,bf16] [--layout=NCX,NXC] [--threads=N]
//                 [--repeat=20] [--direction=backward] PROBLEM...
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "backends/onednn/onednn_backend.h"
#include "tests/bench/direct_onednn.h"

ABSL_FLAG(std::vector<std::string>, dtype,
          std::vector<std::string>({"f32", "bf16"}), "operand dtypes");
ABSL_FLAG(std::vector<std::string>, layout,
          std::vector<std::string>({"NCX", "NXC"}), "activation layouts");
ABSL_FLAG(std::string, direction, "backward", "backward or forward");
ABSL_FLAG(bool, grad_input, true, "ask for grad_input");
ABSL_FLAG(int, threads, 0, "0: all usable cores");
ABSL_FLAG(int, repeat, 21, "runs of each; the median counts");

namespace convgrad::bench {
namespace {

ConvOperation MakeOperation(const ConvProblem& problem, DataType dtype,
                            Layout layout) {
  ConvOperation op;
  op.problem = problem;
  const auto tensor = [&](Dims dims, DataType type, Layout where) {
    return TensorDescriptor{type, where, std::move(dims)};
  };
  const auto weight = tensor(WeightDims(problem), dtype, Layout::kOIX);
  const auto input = tensor(InputDims(problem), dtype, layout);
  op.operand(Operand::kWeight) = weight;
  op.operand(Operand::kInput) = input;
  if (absl::GetFlag(FLAGS_direction) == "forward") {
    op.results = {
        {Result::kOutput, tensor(OutputDims(problem), dtype, layout)}};
    return op;
  }
  op.direction = Direction::kBackward;
  op.operand(Operand::kGradOutput) = tensor(OutputDims(problem), dtype, layout);
  if (absl::GetFlag(FLAGS_grad_input)) {
    op.results.push_back({Result::kGradInput, input});
  }
  op.results.push_back(
      {Result::kGradWeight,
       tensor(WeightDims(problem), DataType::kF32, Layout::kOIX)});
  op.problem.bias = PerChannelBiasDims(problem);
  op.results.push_back(
      {Result::kGradBias,
       tensor(*op.problem.bias, DataType::kF32, Layout::kNCX)});
  return op;
}

// Aligned memory, filled with small numbers.
struct Aligned {
  explicit Aligned(int64_t bytes)
      : data(static_cast<std::byte*>(
            std::aligned_alloc(64, (bytes + 63) / 64 * 64))) {
    for (int64_t i = 0; i + 1 < bytes; i += 2) {
      data[i] = std::byte{0};
      data[i + 1] = std::byte{0x3f};
    }
  }
  Aligned(Aligned&& other) noexcept
      : data(std::exchange(other.data, nullptr)) {}
  ~Aligned() { std::free(data); }
  std::byte* data;
};

double Milliseconds(std::vector<absl::Duration> times) {
  if (times.empty()) return 0;
  std::nth_element(times.begin(), times.begin() + times.size() / 2,
                   times.end());
  return absl::ToDoubleMilliseconds(times[times.size() / 2]);
}

struct Measured {
  std::vector<absl::Duration> total, reorder, compute;
  void Add(absl::Duration all, absl::Duration reorders, absl::Duration passes) {
    total.push_back(all);
    reorder.push_back(reorders);
    compute.push_back(passes);
  }
};

class BackendRun {
 public:
  BackendRun(const Backend& backend, const ConvOperation& op, int threads) {
    auto plan = backend.MakePlan(op, {threads, true});
    if (!plan.ok()) {
      std::fprintf(stderr, "%s\n", plan.status().ToString().c_str());
      std::exit(1);
    }
    plan_ = *std::move(plan);
    for (Operand operand : kAllOperands) {
      if (!op.operand(operand)) continue;
      memory_.emplace_back(*ByteSize(*op.operand(operand)));
      buffers_.operands[static_cast<size_t>(operand)] = memory_.back().data;
    }
    for (const ResultRequest& request : op.results) {
      memory_.emplace_back(*ByteSize(request.descriptor));
      buffers_.results.push_back(memory_.back().data);
    }
    memory_.emplace_back(plan_->scratch_bytes());
    buffers_.scratch =
        absl::MakeSpan(memory_.back().data, plan_->scratch_bytes());
  }

  void Run(Measured* measured) {
    const absl::Time start = absl::Now();
    const auto times = plan_->Run(buffers_);
    if (!times.ok()) std::exit(1);
    if (measured != nullptr) {
      measured->Add(absl::Now() - start, times->reorder, times->compute);
    }
  }
  std::string implementation() const {
    return std::string(plan_->implementation());
  }

 private:
  std::unique_ptr<Plan> plan_;
  std::vector<Aligned> memory_;
  RunBuffers buffers_;
};

void PrintRow(const ConvOperation& op, int threads, const Backend& backend) {
  BackendRun ours(backend, op, threads);
  std::vector<std::unique_ptr<DirectOnednn>> direct;
  for (DirectFormat format :
       {DirectFormat::kAny, DirectFormat::kNXC, DirectFormat::kNCX}) {
    direct.push_back(DirectOnednn::Make(op, format, threads));
  }
  Measured our_times, direct_times[3];
  for (int i = -2; i < absl::GetFlag(FLAGS_repeat); ++i) {
    ours.Run(i < 0 ? nullptr : &our_times);
    for (size_t f = 0; f < direct.size(); ++f) {
      if (direct[f] == nullptr) continue;
      const absl::Time start = absl::Now();
      const auto times = direct[f]->Run();
      if (i >= 0) {
        direct_times[f].Add(absl::Now() - start, times.reorder, times.compute);
      }
    }
  }
  double best = 1e300;
  double with_reorders[3];
  for (int f = 0; f < 3; ++f) {
    with_reorders[f] = Milliseconds(direct_times[f].total);
    if (with_reorders[f] > 0) best = std::min(best, with_reorders[f]);
  }
  const double mine = Milliseconds(our_times.total);
  const double any = Milliseconds(direct_times[0].compute);
  const auto& first = op.direction == Direction::kForward
                          ? op.operand(Operand::kInput)
                          : op.operand(Operand::kGradOutput);
  std::printf(
      "| %s | %s | %s | %.2f (%.2f) | %.2f | %.2f | %.2f | %.2f | %.3f | %.3f "
      "| "
      "%s |\n",
      ToString(op.problem).c_str(), NameOf(OperandDtype(op)).data(),
      NameOf(first->layout).data(), mine, Milliseconds(our_times.reorder), any,
      with_reorders[0], with_reorders[1], with_reorders[2], mine / best,
      mine / any, ours.implementation().c_str());
  std::fflush(stdout);
}

int UsableCores() {
  cpu_set_t set;
  sched_getaffinity(0, sizeof(set), &set);
  return CPU_COUNT(&set);
}

int Main(int argc, char** argv) {
  const std::vector<char*> arguments = absl::ParseCommandLine(argc, argv);
  auto backend = MakeOnednnBackend();
  if (!backend.ok()) return 1;
  const int threads = absl::GetFlag(FLAGS_threads) > 0
                          ? absl::GetFlag(FLAGS_threads)
                          : UsableCores();
  std::printf(
      "Milliseconds, median of %d, %d threads; in brackets: of it reorders.\n\n"
      "| problem | dtype | layout | backend | any, no reorders | any | nxc | "
      "ncx "
      "| / best | / any, no reorders | implementation |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|\n",
      absl::GetFlag(FLAGS_repeat), threads);
  for (size_t i = 1; i < arguments.size(); ++i) {
    const auto problem = Parse(arguments[i]);
    if (!problem.ok()) {
      std::fprintf(stderr, "%s\n", problem.status().ToString().c_str());
      return 1;
    }
    for (const std::string& dtype : absl::GetFlag(FLAGS_dtype)) {
      for (const std::string& layout : absl::GetFlag(FLAGS_layout)) {
        PrintRow(MakeOperation(*problem,
                               ParseDataType(dtype).value_or(DataType::kF32),
                               ParseLayout(layout).value_or(Layout::kNCX)),
                 threads, **backend);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace convgrad::bench

int main(int argc, char** argv) { return convgrad::bench::Main(argc, argv); }
