// This program measures calls to a running server and their floors, alternating
// in one run, and prints one JSON object a line. tests/bench/run starts the
// servers, and makes tables and a plot of the output.
//
//   rpc_ratio --part=layers|tiny|batch|clients|asked --tcp=HOST:PORT
//             [--unix=unix:PATH] [--regions=unix:PATH] [--dtype=f32,bf16]
//             [--threads=N] [--repeat=7] [--torch_python=PATH] PROBLEM...
//
// Names: "onednn" is the library in this process, without reorders; "socket",
// "grpc" and "copy" move the same bytes and compute nothing; "torch" is PyTorch
// in a process of its own. Calls: "tcp", "unix", "stream" (over TCP), "region"
// (tensors copied to and from shared memory), "region_in_place". The part
// "asked" is controlled by another program: for each line that it reads ("NAME
// COUNT") it runs the problem COUNT times, and prints the milliseconds on one
// line.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <iostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tests/bench/caller.h"
#include "tests/bench/direct_onednn.h"
#include "tests/bench/floors.h"
#include "tests/bench/subject.h"

ABSL_FLAG(std::string, part, "layers", "layers, tiny, batch, clients or asked");
ABSL_FLAG(std::string, tcp, "", "server, HOST:PORT");
ABSL_FLAG(std::string, unix, "", "the same server, unix:PATH");
ABSL_FLAG(std::string, regions, "", "its side socket, unix:PATH");
ABSL_FLAG(std::vector<std::string>, dtype, std::vector<std::string>({"f32"}),
          "operand dtypes");
ABSL_FLAG(std::vector<std::string>, clients,
          std::vector<std::string>({"1", "2", "4", "16"}),
          "numbers of clients");
ABSL_FLAG(int, threads, 0, "of the library in this process; 0: all cores");
ABSL_FLAG(int, repeat, 7, "runs of each");
ABSL_FLAG(absl::Duration, pause, absl::Milliseconds(20),
          "before each run: libgomp's threads spin on for a while");
ABSL_FLAG(absl::Duration, duration, absl::Seconds(3),
          "of a measurement with several clients");
ABSL_FLAG(std::string, torch_python, "", "an interpreter that has PyTorch");

namespace convgrad::bench {
namespace {

// A measured call or floor, and its times.
struct Contestant {
  std::string name;
  std::function<absl::Duration()> run;
  std::function<std::string()> more = nullptr;  // further JSON fields
  std::vector<double> milliseconds = {};
};

double Quantile(std::vector<double> sorted, double q) {
  std::sort(sorted.begin(), sorted.end());
  return sorted[static_cast<size_t>(q *
                                    static_cast<double>(sorted.size() - 1))];
}

// The task of the command line.
struct Task {
  ConvOperation operation;
  std::string dtype;
};

void Print(const Task& task, const Contestant& contestant) {
  const std::vector<double>& times = contestant.milliseconds;
  std::printf(
      "{\"part\": \"%s\", \"problem\": \"%s\", \"dtype\": \"%s\", "
      "\"name\": \"%s\", \"count\": %zu, \"min_ms\": %.4f, \"p50_ms\": %.4f, "
      "\"p99_ms\": %.4f%s}\n",
      absl::GetFlag(FLAGS_part).c_str(),
      ToString(task.operation.problem).c_str(), task.dtype.c_str(),
      contestant.name.c_str(), times.size(), Quantile(times, 0),
      Quantile(times, 0.5), Quantile(times, 0.99),
      contestant.more ? contestant.more().c_str() : "");
  std::fflush(stdout);
}

// Times all contestants in turns, so that a disturbance affects all.
void Race(const Task& task, std::vector<Contestant> contestants) {
  const int repeat = absl::GetFlag(FLAGS_repeat);
  for (int i = -2; i < repeat; ++i) {
    for (Contestant& contestant : contestants) {
      absl::SleepFor(absl::GetFlag(FLAGS_pause));
      const absl::Duration took = contestant.run();
      if (i < 0) continue;
      contestant.milliseconds.push_back(absl::ToDoubleMilliseconds(took));
    }
  }
  for (const Contestant& contestant : contestants) Print(task, contestant);
}

// Runs the contestant that each input line names.
void RunAsked(const std::vector<Contestant>& contestants) {
  std::string name;
  for (int count; std::cin >> name >> count;) {
    const auto found = absl::c_find_if(
        contestants,
        [&](const Contestant& contestant) { return contestant.name == name; });
    if (found == contestants.end()) {
      Fail(absl::InvalidArgumentError(absl::StrCat("no contestant ", name)));
    }
    for (int i = 0; i < count; ++i) {
      std::printf("%.4f ", absl::ToDoubleMilliseconds(found->run()));
    }
    std::printf("\n");
    std::fflush(stdout);
  }
}

template <typename T>
std::shared_ptr<T> Shared(std::unique_ptr<T> owned) {
  return std::shared_ptr<T>(std::move(owned));
}

void AddFloor(const std::string& name, std::unique_ptr<Floor> floor,
              std::vector<Contestant>* contestants) {
  contestants->push_back(
      {name, [floor = Shared(std::move(floor))] { return floor->Run(); }});
}

void AddCaller(const std::string& name, std::unique_ptr<Caller> caller,
               std::vector<Contestant>* contestants) {
  const auto shared = Shared(std::move(caller));
  contestants->push_back({name, [shared] { return shared->Run(); },
                          [shared] { return shared->StagesAsJson(); }});
}

CallBytes BytesOf(const ConvOperation& operation) {
  CallBytes bytes;
  for (const auto& operand : operation.operands) {
    if (operand) bytes.request += *ByteSize(*operand);
  }
  for (const ResultRequest& request : operation.results) {
    bytes.reply += *ByteSize(request.descriptor);
  }
  return bytes;
}

int Threads() {
  const int threads = absl::GetFlag(FLAGS_threads);
  return threads > 0 ? threads
                     : static_cast<int>(std::thread::hardware_concurrency());
}

void AddLibrary(const Task& task, int threads,
                std::vector<Contestant>* contestants) {
  const auto library =
      Shared(DirectOnednn::Make(task.operation, DirectFormat::kAny, threads));
  if (library == nullptr) return;
  contestants->push_back(
      {"onednn", [library] { return library->Run().compute; }});
}

void AddTorch(const Task& task, std::vector<Contestant>* contestants) {
  const std::string python = absl::GetFlag(FLAGS_torch_python);
  const ConvProblem& problem = task.operation.problem;
  if (python.empty() || problem.axes.size() != 2) return;
  const SpatialAxis& axis = problem.axes[0];
  AddFloor(
      "torch",
      MakeTorchFloor(
          python,
          absl::StrCat(problem.batch, " ", problem.in_channels, " ",
                       problem.out_channels, " ", axis.in, " ", axis.kernel,
                       " ", axis.stride, " ", axis.pad_begin, " ", task.dtype,
                       " ", task.operation.result(Result::kGradInput) ? 1 : 0,
                       " ", Threads())),
      contestants);
}

void AddMovers(const Task& task, std::vector<Contestant>* contestants) {
  const CallBytes bytes = BytesOf(task.operation);
  AddFloor("socket", MakeSocketFloor(bytes), contestants);
  AddFloor("grpc", MakeGrpcFloor(bytes), contestants);
  AddFloor("copy", MakeCopyFloor(bytes), contestants);
}

void AddCalls(const Task& task, bool streams,
              std::vector<Contestant>* contestants) {
  const std::string tcp = absl::GetFlag(FLAGS_tcp);
  AddCaller("tcp", MakeMessageCaller(tcp, task.operation), contestants);
  if (streams) {
    AddCaller("stream", MakeStreamCaller(tcp, task.operation), contestants);
  }
  if (!absl::GetFlag(FLAGS_unix).empty()) {
    AddCaller("unix",
              MakeMessageCaller(absl::GetFlag(FLAGS_unix), task.operation),
              contestants);
  }
  const std::string regions = absl::GetFlag(FLAGS_regions);
  if (regions.empty()) return;
  AddCaller("region", MakeRegionCaller(tcp, regions, task.operation, true),
            contestants);
  AddCaller("region_in_place",
            MakeRegionCaller(tcp, regions, task.operation, false), contestants);
}

void RunAlone(const Task& task) {
  std::vector<Contestant> contestants;
  const std::string part = absl::GetFlag(FLAGS_part);
  const bool tiny = part == "tiny";
  // The threads of a team would spin while the other contestants run.
  AddLibrary(task, tiny ? 1 : Threads(), &contestants);
  if (!tiny) AddTorch(task, &contestants);
  AddMovers(task, &contestants);
  AddCalls(task, !tiny, &contestants);
  if (part == "asked") return RunAsked(contestants);
  Race(task, std::move(contestants));
}

// Makes `count` clients call at once; each calls again when it has its answer.
// Counts the answers in the second of two equal periods, because in the first
// one the buffers of so many calls are mapped by the system, page by page.
void RunTogether(const Task& task, int count) {
  std::vector<std::unique_ptr<Caller>> callers;
  for (int i = 0; i < count; ++i) {
    callers.push_back(
        MakeMessageCaller(absl::GetFlag(FLAGS_tcp), task.operation));
    callers.back()->Run();
  }
  std::atomic<int> calls = 0;
  const absl::Duration duration = absl::GetFlag(FLAGS_duration);
  const absl::Time start = absl::Now() + duration;
  const absl::Time end = start + duration;
  std::vector<std::thread> threads;
  for (const auto& caller : callers) {
    threads.emplace_back([&calls, start, end, caller = caller.get()] {
      while (absl::Now() < end) {
        caller->Run();
        const absl::Time answered = absl::Now();
        if (start <= answered && answered < end) ++calls;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::printf(
      "{\"part\": \"clients\", \"problem\": \"%s\", \"dtype\": \"%s\", "
      "\"name\": \"tcp\", \"clients\": %d, \"calls_per_second\": %.3f}\n",
      ToString(task.operation.problem).c_str(), task.dtype.c_str(), count,
      calls.load() / absl::ToDoubleSeconds(duration));
  std::fflush(stdout);
}

void RunClients(const Task& task) {
  std::vector<Contestant> floors;
  AddLibrary(task, Threads(), &floors);
  AddMovers(task, &floors);
  Race(task, std::move(floors));
  for (const std::string& count : absl::GetFlag(FLAGS_clients)) {
    RunTogether(task, std::stoi(count));
  }
}

// Returns the gradients that a trainer asks for. A first layer needs no
// grad_input.
ConvOperation Gradients(ConvProblem problem, DataType dtype) {
  problem.bias = PerChannelBiasDims(problem);
  ConvOperation operation =
      WholeOperation(problem, Direction::kBackward, dtype, Layout::kNXC);
  if (problem.in_channels == 3) {
    operation.results.erase(operation.results.begin());
    DropUnneeded(&operation);
  }
  return operation;
}

int Main(int argc, char** argv) {
  const std::vector<char*> arguments = absl::ParseCommandLine(argc, argv);
  for (size_t i = 1; i < arguments.size(); ++i) {
    const auto problem = Parse(arguments[i]);
    if (!problem.ok()) Fail(problem.status());
    for (const std::string& dtype : absl::GetFlag(FLAGS_dtype)) {
      const Task task = {
          Gradients(*problem, ParseDataType(dtype).value_or(DataType::kF32)),
          dtype};
      if (absl::GetFlag(FLAGS_part) == "clients") {
        RunClients(task);
      } else {
        RunAlone(task);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace convgrad::bench

int main(int argc, char** argv) { return convgrad::bench::Main(argc, argv); }
