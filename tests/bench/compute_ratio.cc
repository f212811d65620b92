// This program prints two times for each problem: the time of a server or of
// the backend alone, and the time of oneDNN called directly. Both use the same
// operation, layouts, threads and pinning. The runs alternate.
//
//   compute_ratio [--server=HOST:PORT] [--dtype=f32,bf16,f16]
//                 [--layout=NCX,NXC] [--threads=N] [--repeat=21]
//                 [--direction=backward] [--problems=FILE] PROBLEM...
//
// The direct time is the best of {any, nxc, ncx}, including reorders from and
// to the same layouts. f16 is compared with f32. bf16 is compared with f32
// where the library has no bf16, or everywhere with --against_f32.
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/registry.h"
#include "tests/bench/direct_onednn.h"
#include "tests/bench/subject.h"

ABSL_FLAG(std::string, server, "", "measure this server, not the backend");
ABSL_FLAG(std::vector<std::string>, dtype,
          std::vector<std::string>({"f32", "bf16"}), "operand dtypes");
ABSL_FLAG(std::vector<std::string>, layout,
          std::vector<std::string>({"NCX", "NXC"}), "activation layouts");
ABSL_FLAG(std::string, direction, "backward", "backward or forward");
ABSL_FLAG(bool, grad_input, true, "ask for grad_input");
ABSL_FLAG(std::string, problems, "", "file with one problem string a line");
ABSL_FLAG(bool, against_f32, false, "hold all dtypes against f32");
ABSL_FLAG(int, threads, 0, "0: all usable cores");
ABSL_FLAG(int, repeat, 21, "runs of each; the median counts");
ABSL_FLAG(absl::Duration, patience, absl::InfiniteDuration(),
          "after this time a row ends with three runs");

namespace convgrad::bench {
namespace {

ConvOperation MakeOperation(ConvProblem problem, DataType dtype,
                            Layout layout) {
  const bool forward = absl::GetFlag(FLAGS_direction) == "forward";
  if (!forward) problem.bias = PerChannelBiasDims(problem);
  ConvOperation op = WholeOperation(
      problem, forward ? Direction::kForward : Direction::kBackward, dtype,
      layout);
  if (!forward && !absl::GetFlag(FLAGS_grad_input)) {
    op.results.erase(op.results.begin());
    DropUnneeded(&op);
  }
  return op;
}

double Milliseconds(std::vector<absl::Duration> times) {
  if (times.empty()) return 0;
  std::nth_element(times.begin(), times.begin() + times.size() / 2,
                   times.end());
  return absl::ToDoubleMilliseconds(times[times.size() / 2]);
}

// One line of the table, in milliseconds.
struct Row {
  double ours = 0;
  double ours_reorders = 0;
  double any_without_reorders = 0;
  double direct[3] = {};  // 0: the library has none
  std::string implementation;

  double best() const {
    double best = std::numeric_limits<double>::infinity();
    for (double time : direct) {
      if (time > 0) best = std::min(best, time);
    }
    return best;
  }
};

// Ratios of rows that are summarized together.
struct Summary {
  void Add(double ratio, const std::string& problem) {
    if (!std::isfinite(ratio) || ratio <= 0) return;
    ++rows;
    log_sum += std::log(ratio);
    if (ratio > worst) {
      worst = ratio;
      worst_problem = problem;
    }
  }
  void Print(absl::string_view name) const {
    if (rows == 0) return;
    std::printf("| %s | %d | %.3f | %.3f | %s |\n", std::string(name).c_str(),
                rows, std::exp(log_sum / rows), worst, worst_problem.c_str());
  }
  int rows = 0;
  double log_sum = 0;
  double worst = 0;
  std::string worst_problem;
};

ConvOperation InF32(ConvOperation op) {
  for (auto& operand : op.operands) {
    if (operand) operand->dtype = DataType::kF32;
  }
  for (ResultRequest& request : op.results) {
    request.descriptor.dtype = DataType::kF32;
  }
  return op;
}

// Returns the direct operations by format; null if the library has none.
std::vector<std::unique_ptr<DirectOnednn>> MakeDirect(const ConvOperation& op,
                                                      int threads) {
  std::vector<std::unique_ptr<DirectOnednn>> direct;
  for (DirectFormat format :
       {DirectFormat::kAny, DirectFormat::kNXC, DirectFormat::kNCX}) {
    direct.push_back(DirectOnednn::Make(op, format, threads));
  }
  return direct;
}

Row MeasureRow(const ConvOperation& op, int threads, Subject* subject) {
  const ConvOperation in_f32 = InF32(op);
  auto direct =
      MakeDirect(absl::GetFlag(FLAGS_against_f32) ? in_f32 : op, threads);
  if (std::count(direct.begin(), direct.end(), nullptr) == std::ssize(direct)) {
    direct = MakeDirect(in_f32, threads);
  }
  // libgomp's threads spin for some ms after a loop, which also disturbs a
  // server on the same cores.
  const bool apart = !absl::GetFlag(FLAGS_server).empty();
  const auto pause = [&] {
    if (apart) absl::SleepFor(absl::Milliseconds(20));
  };
  Measured ours, direct_times[3];
  const absl::Time start = absl::Now();
  for (int i = apart ? -2 : -1; i < absl::GetFlag(FLAGS_repeat); ++i) {
    if (i >= 3 && absl::Now() - start > absl::GetFlag(FLAGS_patience)) break;
    pause();
    subject->Run(i < 0 ? nullptr : &ours);
    pause();
    for (size_t f = 0; f < direct.size(); ++f) {
      if (direct[f] == nullptr) continue;
      const absl::Time begin = absl::Now();
      const auto times = direct[f]->Run();
      if (i >= 0) {
        direct_times[f].Add(absl::Now() - begin, times.reorder, times.compute);
      }
    }
  }
  Row row;
  row.ours = Milliseconds(ours.total);
  row.ours_reorders = Milliseconds(ours.reorder);
  row.any_without_reorders = Milliseconds(direct_times[0].compute);
  for (int f = 0; f < 3; ++f)
    row.direct[f] = Milliseconds(direct_times[f].total);
  row.implementation = subject->implementation();
  return row;
}

int UsableCores() {
  cpu_set_t set;
  sched_getaffinity(0, sizeof(set), &set);
  return CPU_COUNT(&set);
}

class Table {
 public:
  Table(const Backend& backend, Client* client, int threads)
      : backend_(backend), client_(client), threads_(threads) {}

  void PrintHead() const {
    std::printf(
        "Milliseconds of the %s, median of up to %d, %d threads; in brackets: "
        "of it reorders.\n\n"
        "| problem | dtype | layout | ours | any, no reorders | any | nxc | "
        "ncx | / best | / any, no reorders | implementation |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|\n",
        client_ != nullptr ? "server" : "backend", absl::GetFlag(FLAGS_repeat),
        threads_);
  }

  void PrintProblem(const ConvProblem& problem) {
    for (const std::string& dtype : absl::GetFlag(FLAGS_dtype)) {
      for (const std::string& layout : absl::GetFlag(FLAGS_layout)) {
        PrintRow(problem, dtype, layout);
      }
    }
  }

  void PrintSummary() const {
    std::printf(
        "\n| / best | rows | geomean | worst | worst problem |\n"
        "|---|---|---|---|---|\n");
    for (const auto& [name, summary] : summaries_) summary.Print(name);
  }

 private:
  void PrintRow(const ConvProblem& problem, const std::string& dtype,
                const std::string& layout) {
    const ConvOperation op =
        MakeOperation(problem, ParseDataType(dtype).value_or(DataType::kF32),
                      ParseLayout(layout).value_or(Layout::kNCX));
    const std::unique_ptr<Subject> ours =
        client_ != nullptr
            ? MakeServerSubject(client_, op)
            : MakeBackendSubject(backend_, op, {.threads = threads_});
    const Row row = MeasureRow(op, threads_, ours.get());
    const std::string text = ToString(op.problem);
    std::printf(
        "| %s | %s | %s | %.2f (%.2f) | %.2f | %.2f | %.2f | %.2f | %.3f | "
        "%.3f | %s |\n",
        text.c_str(), dtype.c_str(), layout.c_str(), row.ours,
        row.ours_reorders, row.any_without_reorders, row.direct[0],
        row.direct[1], row.direct[2], row.ours / row.best(),
        row.ours / row.any_without_reorders, row.implementation.c_str());
    std::fflush(stdout);
    const std::string group = absl::StrCat(dtype, " ", layout);
    summaries_[group].Add(row.ours / row.best(), text);
  }

  const Backend& backend_;
  Client* const client_;
  const int threads_;
  std::map<std::string, Summary> summaries_;
};

std::vector<std::string> ProblemTexts(const std::vector<char*>& arguments) {
  std::vector<std::string> texts(arguments.begin() + 1, arguments.end());
  std::ifstream file(absl::GetFlag(FLAGS_problems));
  for (std::string line; std::getline(file, line);) texts.push_back(line);
  return texts;
}

int Main(int argc, char** argv) {
  const std::vector<char*> arguments = absl::ParseCommandLine(argc, argv);
  auto backends = SelectBackends(MakeBackends(), "onednn");
  if (!backends.ok()) Fail(backends.status());
  const auto& backend = (*backends)[0].backend;
  if (!backend.ok()) Fail(backend.status());
  const int threads = absl::GetFlag(FLAGS_threads) > 0
                          ? absl::GetFlag(FLAGS_threads)
                          : UsableCores();
  std::unique_ptr<Client> client;
  if (!absl::GetFlag(FLAGS_server).empty()) {
    auto connected = Client::Connect({absl::GetFlag(FLAGS_server)});
    if (!connected.ok()) Fail(connected.status());
    client = *std::move(connected);
  }
  Table table(**backend, client.get(), threads);
  table.PrintHead();
  for (const std::string& text : ProblemTexts(arguments)) {
    const auto problem = Parse(text);
    if (!problem.ok()) Fail(problem.status());
    table.PrintProblem(*problem);
  }
  table.PrintSummary();
  return 0;
}

}  // namespace
}  // namespace convgrad::bench

int main(int argc, char** argv) { return convgrad::bench::Main(argc, argv); }
