// Prints, per problem, the time of a server, or of the backend alone, beside
// oneDNN called directly for the same operation, layouts, threads and pinning,
// interleaved.
//
//   compute_ratio [--server=HOST:PORT] [--dtype=f32,bf16,f16]
//                 [--layout=NCX,NXC] [--threads=N] [--repeat=21]
//                 [--direction=backward] PROBLEM...
//
// A server's time is all between decode and encode but the queue: plan look-up,
// reorders, compute and epilogue, as its report has it.
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
#include "client/cpp/client.h"
#include "tests/bench/direct_onednn.h"

ABSL_FLAG(std::string, server, "", "measure this server, not the backend");
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

// What is measured: one operation, again and again.
class Subject {
 public:
  virtual ~Subject() = default;
  // Adds to `measured` if it isn't null. Ends the program on an error.
  virtual void Run(Measured* measured) = 0;
  virtual std::string implementation() const = 0;
};

[[noreturn]] void Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

class BackendRun final : public Subject {
 public:
  BackendRun(const Backend& backend, const ConvOperation& op, int threads) {
    auto plan = backend.MakePlan(op, {threads, true});
    if (!plan.ok()) Fail(plan.status());
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

  void Run(Measured* measured) override {
    const absl::Time start = absl::Now();
    const auto times = plan_->Run(buffers_);
    if (!times.ok()) Fail(times.status());
    if (measured != nullptr) {
      measured->Add(absl::Now() - start, times->reorder, times->compute);
    }
  }
  std::string implementation() const override {
    return std::string(plan_->implementation());
  }

 private:
  std::unique_ptr<Plan> plan_;
  std::vector<Aligned> memory_;
  RunBuffers buffers_;
};

class ServerRun final : public Subject {
 public:
  ServerRun(Client* client, const ConvOperation& op) : client_(client) {
    call_.operation = op;
    for (Operand operand : kAllOperands) {
      if (!op.operand(operand)) continue;
      const int64_t bytes = *ByteSize(*op.operand(operand));
      memory_.emplace_back(bytes);
      call_.operands[static_cast<size_t>(operand)] =
          absl::MakeConstSpan(memory_.back().data, bytes);
    }
  }

  void Run(Measured* measured) override {
    const auto reply = client_->Run(call_);
    if (!reply.ok()) Fail(reply.status());
    const v1::StageTimes& seconds = reply->report.seconds();
    implementation_ = reply->report.implementation();
    if (measured == nullptr) return;
    measured->Add(
        absl::Seconds(seconds.total() - seconds.receive() - seconds.decode() -
                      seconds.queue() - seconds.encode()),
        absl::Seconds(seconds.reorder()), absl::Seconds(seconds.compute()));
  }
  std::string implementation() const override { return implementation_; }

 private:
  Client* const client_;
  OperationCall call_;
  std::vector<Aligned> memory_;
  std::string implementation_;
};

void PrintRow(const ConvOperation& op, int threads, Subject& ours) {
  std::vector<std::unique_ptr<DirectOnednn>> direct;
  for (DirectFormat format :
       {DirectFormat::kAny, DirectFormat::kNXC, DirectFormat::kNCX}) {
    direct.push_back(DirectOnednn::Make(op, format, threads));
  }
  Measured our_times, direct_times[3];
  for (int i = -2; i < absl::GetFlag(FLAGS_repeat); ++i) {  // two to warm up
    // libgomp's threads spin on for some ms after a loop, also against a server
    // on the same cores.
    absl::SleepFor(absl::Milliseconds(20));
    ours.Run(i < 0 ? nullptr : &our_times);
    absl::SleepFor(absl::Milliseconds(20));
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

// The subject of one row: the server if one is named.
std::unique_ptr<Subject> MakeSubject(const Backend& backend, Client* client,
                                     const ConvOperation& op, int threads) {
  if (client != nullptr) return std::make_unique<ServerRun>(client, op);
  return std::make_unique<BackendRun>(backend, op, threads);
}

void PrintProblem(const ConvProblem& problem, const Backend& backend,
                  Client* client, int threads) {
  for (const std::string& dtype : absl::GetFlag(FLAGS_dtype)) {
    for (const std::string& layout : absl::GetFlag(FLAGS_layout)) {
      const ConvOperation op =
          MakeOperation(problem, ParseDataType(dtype).value_or(DataType::kF32),
                        ParseLayout(layout).value_or(Layout::kNCX));
      PrintRow(op, threads, *MakeSubject(backend, client, op, threads));
    }
  }
}

int Main(int argc, char** argv) {
  const std::vector<char*> arguments = absl::ParseCommandLine(argc, argv);
  const auto backend = MakeOnednnBackend();
  if (!backend.ok()) Fail(backend.status());
  std::unique_ptr<Client> client;
  if (!absl::GetFlag(FLAGS_server).empty()) {
    auto connected = Client::Connect({absl::GetFlag(FLAGS_server)});
    if (!connected.ok()) Fail(connected.status());
    client = *std::move(connected);
  }
  const int threads = absl::GetFlag(FLAGS_threads) > 0
                          ? absl::GetFlag(FLAGS_threads)
                          : UsableCores();
  std::printf(
      "Milliseconds of the %s, median of %d, %d threads; in brackets: of it "
      "reorders.\n\n"
      "| problem | dtype | layout | ours | any, no reorders | any | nxc | ncx "
      "| / best | / any, no reorders | implementation |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|\n",
      client != nullptr ? "server" : "backend", absl::GetFlag(FLAGS_repeat),
      threads);
  for (size_t i = 1; i < arguments.size(); ++i) {
    const auto problem = Parse(arguments[i]);
    if (!problem.ok()) Fail(problem.status());
    PrintProblem(*problem, **backend, client.get(), threads);
  }
  return 0;
}

}  // namespace
}  // namespace convgrad::bench

int main(int argc, char** argv) { return convgrad::bench::Main(argc, argv); }
