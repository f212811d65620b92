#include "backends/onednn/execution/onednn_executor.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "backends/onednn/library/onednn_threads.h"
#include "backends/onednn/library/onednn_types.h"

namespace convgrad::onednn {
namespace {

bool Runs(const NetworkStep& step, const RunContext& context) {
  return step.only_if == kNoBuffer || *context.Read<int32_t>(step.only_if) != 0;
}

void AddTime(const NetworkStep& step, absl::Duration time, RunTimes* times) {
  if (step.kind == kLayoutKind || step.kind == kWeightLayoutKind) {
    times->reorder += time;
    return;
  }
  times->compute += time;
  if (!step.kind.empty()) times->steps[step.kind] += time;
}

}  // namespace

struct Executor::Session {
  // The library's memory objects of a step's arguments.
  struct Call {
    explicit Call(const NetworkStep& step) {
      for (const NetworkStep::Argument& argument : step.arguments) {
        memories.emplace_back(argument.desc, CpuEngine(), nullptr);
        arguments.push_back({argument.arg, memories.back().get()});
      }
    }

    void Execute(const NetworkStep& step, const dnnl::primitive& primitive,
                 const RunContext& context, const dnnl::stream& stream) {
      for (size_t i = 0; i < memories.size(); ++i) {
        memories[i].set_data_handle(context.At(step.arguments[i].location));
      }
      dnnl::error::wrap_c_api(
          dnnl_primitive_execute(primitive.get(), stream.get(),
                                 static_cast<int>(arguments.size()),
                                 arguments.data()),
          "could not execute a primitive");
    }

    std::vector<dnnl::memory> memories;
    std::vector<dnnl_exec_arg_t> arguments;
  };

  explicit Session(const std::vector<NetworkStep>& steps)
      : calls(steps.begin(), steps.end()) {}

  dnnl::stream stream{CpuEngine()};
  std::vector<Call> calls;  // by step
};

Executor::Executor(PlacedSchedule placed, int threads)
    : placed_(std::move(placed)), threads_(threads) {
  for (const NetworkStep& step : steps()) {
    primitives_.push_back(step.function
                              ? dnnl::primitive()
                              : dnnl::primitive(step.primitive_desc.get()));
  }
}

Executor::~Executor() = default;

int64_t Executor::resident_bytes() const {
  // What a primitive with its generated code holds, roughly: measured as growth
  // of the resident size over 500 ResNet-50 plans of oneDNN 3.2.
  constexpr int64_t kPrimitiveBytes = 64 << 10;
  int64_t bytes = std::ssize(steps()) * kPrimitiveBytes;
  for (const NetworkStep& step : steps()) {
    // A step that runs again shares its table with the first time.
    if (!step.is_again) bytes += step.table_bytes;
  }
  return bytes;
}

std::unique_ptr<Executor::Session> Executor::TakeSession() const {
  {
    MutexLock lock(&mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Session> session = std::move(idle_.back());
      idle_.pop_back();
      return session;
    }
  }
  return std::make_unique<Session>(steps());
}

void Executor::ReturnSession(std::unique_ptr<Session> session) const {
  MutexLock lock(&mutex_);
  idle_.push_back(std::move(session));
}

std::byte* Executor::AddressOf(size_t buffer, const RunBuffers& buffers) const {
  const auto operand = [&](size_t index) {
    // Steps only read operands, the tape of a backward among them.
    return index < buffers.operands.size()
               ? static_cast<std::byte*>(
                     const_cast<void*>(buffers.operands[index]))
               : nullptr;
  };
  const auto result = [&](size_t index) {
    return static_cast<std::byte*>(buffers.results[index]);
  };
  const auto& [bytes, area, index] = placed_.schedule.buffers()[buffer];
  if (area == Area::kOperand) return operand(index);
  if (area == Area::kResult) return result(index);
  if (area == Area::kGathered && buffers.is_gathered[index]) {
    return operand(index);
  }
  const MemoryMap& memory = placed_.memory;
  if (memory.tape_offsets[buffer] != MemoryMap::kUnplaced) {
    const NetworkBuffer& tape = placed_.tape;
    return (tape.area == Area::kResult ? result(tape.index)
                                       : operand(tape.index)) +
           memory.tape_offsets[buffer];
  }
  const int64_t prepared = placed_.prepared.offsets[buffer];
  if (!buffers.prepared_weight.empty() && prepared != PreparedParts::kNotKept) {
    return buffers.prepared_weight.data() + prepared;
  }
  return memory.scratch_offsets[buffer] == MemoryMap::kUnplaced
             ? nullptr
             : buffers.scratch.data() + memory.scratch_offsets[buffer];
}

bool Executor::IsDone(size_t step, const RunBuffers& buffers) const {
  if (placed_.prepared.prepares[step]) return buffers.weight_is_prepared;
  const std::vector<BufferId>& writes = steps()[step].writes;
  return std::any_of(writes.begin(), writes.end(), [&](BufferId written) {
    const NetworkBuffer& buffer = placed_.schedule.buffers()[written];
    return buffer.area == Area::kGathered && buffers.is_gathered[buffer.index];
  });
}

absl::Status Executor::RunIn(Session* session, const RunBuffers& buffers,
                             size_t begin, size_t end, RunTimes* times) const {
  std::vector<std::byte*> addresses;
  addresses.reserve(placed_.schedule.buffers().size());
  for (size_t i = 0; i < placed_.schedule.buffers().size(); ++i) {
    addresses.push_back(AddressOf(i, buffers));
  }
  const RunContext context(addresses, threads_);
  absl::Time before = absl::Now();
  for (size_t i = begin; i < end; ++i) {
    const NetworkStep& step = steps()[i];
    if (IsDone(i, buffers) || !Runs(step, context)) continue;
    if (step.check) RETURN_IF_ERROR(step.check(context));
    if (step.function) {
      step.function(context);
    } else {
      session->calls[i].Execute(step, primitives_[i], context, session->stream);
    }
    const absl::Time after = absl::Now();
    AddTime(step, after - before, times);
    before = after;
  }
  session->stream.wait();
  return absl::OkStatus();
}

absl::StatusOr<RunTimes> Executor::Run(const RunBuffers& buffers, size_t begin,
                                       size_t end) const {
  UseThreads(threads_);
  RunTimes times;
  absl::Status status;
  RETURN_IF_ERROR(Guard("execution", [&] {
    std::unique_ptr<Session> session = TakeSession();
    status = RunIn(session.get(), buffers, begin, end, &times);
    ReturnSession(std::move(session));
  }));
  RETURN_IF_ERROR(status);
  return times;
}

}  // namespace convgrad::onednn
