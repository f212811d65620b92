// This program runs one operation on a program each time that it reads a line.
// It answers with the milliseconds of the run and of processor time, the latter
// divided by the number of threads. network_step.py uses it and alternates with
// PyTorch. On a busy machine only processor time can be compared.
//
//   network_step --program=FILE --input=16x3x224x224 --input=16 --data=FOLDER
//                [--part=train|forward] [--threads=2] [--block=16|8|0]
//                [--dtype=f32|bf16] [--native_bf16] [--recompute] [--fast]
//
// FOLDER has the operands as operand_0, operand_1... in the order of
// RunBuffers, as bytes. The line "write" writes result_0... there. "steps"
// prints the least milliseconds of processor time of each step so far. "kinds"
// prints their sums by kind of step, and "end" ends. Bind the threads with
// OMP_PROC_BIND=true, because a parallel region takes milliseconds if libgomp
// has two threads on one core.
#include <hwy/targets.h>
#include <sys/mman.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "backends/onednn/networks/network_plan.h"

ABSL_FLAG(std::string, program, "", "file with the program's text");
ABSL_FLAG(std::vector<std::string>, input, {}, "dims of the inputs");
ABSL_FLAG(std::string, data, "", "folder of operands and results");
ABSL_FLAG(std::string, part, "train", "train or forward");
ABSL_FLAG(int, threads, 2, "threads");
ABSL_FLAG(int, block, 16, "channels per block; 0: channels last");
ABSL_FLAG(std::string, dtype, "f32", "f32 or bf16");
ABSL_FLAG(bool, recompute, false, "compute values again in the backward");
ABSL_FLAG(bool, fast, false, "convolutions by Winograd's algorithm");
ABSL_FLAG(bool, native_bf16, false, "bf16 by the CPU's own instructions");

namespace convgrad::bench {
namespace {

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

// Allocates memory as the server's pool does: on huge pages, touched before its
// use.
std::byte* Allocate(int64_t bytes) {
  constexpr size_t kHugePage = 2 << 20;
  const size_t rounded =
      (static_cast<size_t>(bytes) + kHugePage) / kHugePage * kHugePage;
  auto* start = static_cast<std::byte*>(std::aligned_alloc(kHugePage, rounded));
  madvise(start, rounded, MADV_HUGEPAGE);
  std::memset(start, 0, rounded);
  return start;
}

ProgramRequest RequestOf(std::shared_ptr<const Program> program) {
  ProgramRequest request;
  request.program = std::move(program);
  request.part = absl::GetFlag(FLAGS_part) == "train" ? ProgramPart::kTrain
                                                      : ProgramPart::kForward;
  request.compute_dtype = *ParseDataType(absl::GetFlag(FLAGS_dtype));
  request.recompute = absl::GetFlag(FLAGS_recompute);
  request.fast = absl::GetFlag(FLAGS_fast);
  const std::vector<std::string> inputs = absl::GetFlag(FLAGS_input);
  for (size_t i = 0; i < request.program->inputs.size(); ++i) {
    TensorDescriptor& tensor = request.inputs.emplace_back();
    if (request.program->inputs[i].is_index) tensor.dtype = DataType::kI64;
    for (absl::string_view extent : absl::StrSplit(inputs.at(i), 'x')) {
      int64_t value = 0;
      if (!absl::SimpleAtoi(extent, &value)) std::exit(1);
      tensor.dims.push_back(value);
    }
  }
  return request;
}

std::string FileOf(absl::string_view kind, size_t i) {
  return absl::StrCat(absl::GetFlag(FLAGS_data), "/", kind, "_", i);
}

RunBuffers MakeBuffers(const ProgramOperation& operation, const Plan& plan) {
  RunBuffers buffers(operation.OperandUses().size());
  for (size_t i = 0; i < operation.OperandUses().size(); ++i) {
    const int64_t bytes = *ByteSize(*operation.OperandUses()[i].tensor);
    std::byte* operand = Allocate(bytes);
    std::ifstream file(FileOf("operand", i), std::ios::binary);
    file.read(reinterpret_cast<char*>(operand), bytes);
    if (!file) Check(absl::NotFoundError(FileOf("operand", i)));
    buffers.operands[i] = operand;
  }
  for (const TensorUse& use : operation.ResultUses()) {
    buffers.results.push_back(Allocate(*ByteSize(*use.tensor)));
  }
  buffers.scratch = {Allocate(plan.scratch_bytes()),
                     static_cast<size_t>(plan.scratch_bytes())};
  return buffers;
}

void WriteResults(const ProgramOperation& operation,
                  const RunBuffers& buffers) {
  for (size_t i = 0; i < buffers.results.size(); ++i) {
    std::ofstream file(FileOf("result", i), std::ios::binary);
    file.write(static_cast<const char*>(buffers.results[i]),
               *ByteSize(*operation.ResultUses()[i].tensor));
  }
}

// Returns the processor time of all threads.
absl::Duration ProcessorTime() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

void PrintKinds(const onednn::NetworkPlan& plan,
                const std::vector<absl::Duration>& minima) {
  std::map<std::string, absl::Duration> kinds;
  for (size_t i = 0; i < minima.size(); ++i) {
    kinds[std::string(plan.steps()[i].kind)] += minima[i];
  }
  for (const auto& [kind, time] : kinds) {
    std::printf("%-28s %9.2f\n", kind.c_str(),
                absl::ToDoubleMilliseconds(time));
  }
}

void PrintSteps(const onednn::NetworkPlan& plan,
                const std::vector<absl::Duration>& minima) {
  for (size_t i = 0; i < minima.size(); ++i) {
    const onednn::Step& step = plan.steps()[i];
    const double milliseconds = absl::ToDoubleMilliseconds(minima[i]);
    std::printf("%4zu %-26s %8.3f ms %7.1f GFLOP/s %12.0f MAC %s\n", i,
                std::string(step.kind).c_str(), milliseconds,
                2 * step.macs / milliseconds / 1e6, step.macs,
                step.function ? "" : step.primitive_desc.impl_info_str());
  }
}

void Serve(const ProgramOperation& operation, const onednn::NetworkPlan& plan) {
  const RunBuffers buffers = MakeBuffers(operation, plan);
  std::vector<absl::Duration> minima(plan.steps().size(),
                                     absl::InfiniteDuration());
  const int threads = absl::GetFlag(FLAGS_threads);
  for (std::string line; std::getline(std::cin, line) && line != "end";) {
    if (line == "write") {
      WriteResults(operation, buffers);
    } else if (line == "kinds") {
      PrintKinds(plan, minima);
    } else if (line == "steps") {
      PrintSteps(plan, minima);
    } else {
      const absl::Time before = absl::Now();
      const absl::Duration cpu_before = ProcessorTime();
      for (size_t i = 0; i < plan.steps().size(); ++i) {
        const absl::Duration start = ProcessorTime();
        Check(plan.RunSteps(buffers, i, i + 1).status());
        minima[i] = std::min(minima[i], (ProcessorTime() - start) / threads);
      }
      std::printf(
          "%.3f %.3f\n", absl::ToDoubleMilliseconds(absl::Now() - before),
          absl::ToDoubleMilliseconds(ProcessorTime() - cpu_before) / threads);
    }
    std::printf(".\n");
    std::fflush(stdout);
  }
}

void Main() {
  std::ifstream file(absl::GetFlag(FLAGS_program));
  std::stringstream text;
  text << file.rdbuf();
  auto program = ParseProgram(text.str());
  Check(program.status());
  auto operation = ProgramOperation::Make(
      RequestOf(std::make_shared<const Program>(*std::move(program))));
  Check(operation.status());
  Check(onednn::CheckNetwork(**operation));
  auto plan = onednn::MakeNetworkPlan(
      **operation, {absl::GetFlag(FLAGS_threads), absl::GetFlag(FLAGS_block),
                    absl::GetFlag(FLAGS_native_bf16)});
  Check(plan.status());
  std::printf("scratch MiB %.1f steps %zu turns %d\n.\n",
              static_cast<double>((*plan)->scratch_bytes()) / (1 << 20),
              (*plan)->steps().size(), (*plan)->quanta());
  std::fflush(stdout);
  Serve(**operation, **plan);
}

}  // namespace
}  // namespace convgrad::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  // Our kernels keep to ONEDNN_MAX_CPU_ISA, too.
  if (dnnl::get_effective_cpu_isa() < dnnl::cpu_isa::avx512_core) {
    hwy::DisableTargets(HWY_AVX2 - 1);
  }
  convgrad::bench::Main();
}
