#include "backends/onednn/execution/onednn_scheduled_plan.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/steady_now.h"
#include "backends/onednn/library/onednn_threads.h"
#include "backends/onednn/library/onednn_types.h"

namespace convgrad::onednn {
namespace {

// Returns the address of the caller's bytes of a buffer, null if it has none.
std::byte* CallersBytes(const Buffer& buffer, const RunBuffers& buffers) {
  if (buffer.area == Area::kResult) {
    return static_cast<std::byte*>(buffers.results[buffer.index]);
  }
  // const_cast is safe: no step writes to an operand, including a tape that a
  // backward pass reads.
  return buffer.index < buffers.operands.size()
             ? static_cast<std::byte*>(
                   const_cast<void*>(buffers.operands[buffer.index]))
             : nullptr;
}

void AddTime(const Step& step, absl::Duration time, RunTimes* times) {
  if (step.kind == kLayoutKind || step.kind == kWeightLayoutKind) {
    times->reorder += time;
    return;
  }
  times->compute += time;
  if (!step.kind.empty()) times->steps[step.kind] += time;
}

}  // namespace

struct ScheduledPlan::Session {
  // The library's memory objects of a step's arguments.
  struct Call {
    explicit Call(const Step& step) {
      for (const Step::Argument& argument : step.arguments) {
        memories.emplace_back(argument.desc, CpuEngine(), nullptr);
        arguments.push_back({argument.arg, memories.back().get()});
      }
    }

    void Execute(const Step& step, const dnnl::primitive& primitive,
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

  explicit Session(const std::vector<Step>& steps)
      : calls(steps.begin(), steps.end()) {}

  dnnl::stream stream{CpuEngine()};
  std::vector<Call> calls;  // by step
};

ScheduledPlan::ScheduledPlan(PlacedSchedule placed, std::string implementation,
                             int threads)
    : placed_(std::move(placed)),
      implementation_(std::move(implementation)),
      threads_(threads) {
  for (const Step& step : steps()) {
    primitives_.push_back(step.function
                              ? dnnl::primitive()
                              : dnnl::primitive(step.primitive_desc.get()));
    is_reference_.push_back(!step.function && IsPlainLoop(step.primitive_desc));
  }
}

ScheduledPlan::~ScheduledPlan() = default;

std::vector<std::string> ScheduledPlan::reference_steps() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < steps().size(); ++i) {
    if (!is_reference_[i]) continue;
    names.push_back(absl::StrCat(steps()[i].kind, " by ",
                                 steps()[i].primitive_desc.impl_info_str()));
  }
  return names;
}

int64_t ScheduledPlan::resident_bytes() const {
  int64_t bytes = 0;
  for (const Step& step : steps()) {
    bytes += step.function ? kFunctionBytes : kPrimitiveBytes;
    // A step that runs again shares its table with the first time.
    if (!step.is_again) bytes += step.table_bytes;
  }
  return bytes;
}

std::unique_ptr<ScheduledPlan::Session> ScheduledPlan::TakeSession() const {
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

std::byte* ScheduledPlan::AddressOf(size_t index,
                                    const RunBuffers& buffers) const {
  const Buffer& buffer = schedule().buffers()[index];
  if (buffer.area != Area::kOwn) return CallersBytes(buffer, buffers);
  const MemoryMap& memory = placed_.memory;
  if (memory.tape_offsets[index] != MemoryMap::kUnplaced) {
    return CallersBytes(placed_.tape, buffers) + memory.tape_offsets[index];
  }
  const int64_t prepared = placed_.prepared.offsets[index];
  if (!buffers.prepared_weight.empty() && prepared != PreparedParts::kNotKept) {
    return buffers.prepared_weight.data() + prepared;
  }
  return memory.scratch_offsets[index] == MemoryMap::kUnplaced
             ? nullptr
             : buffers.scratch.data() + memory.scratch_offsets[index];
}

void ScheduledPlan::FillTapeGaps(std::byte* tape) const {
  for (size_t i = 0; i < schedule().buffers().size(); ++i) {
    const int64_t begin = placed_.memory.tape_offsets[i];
    if (begin == MemoryMap::kUnplaced) continue;
    const int64_t end = begin + schedule().buffers()[i].bytes;
    std::memset(tape + end, 0, RoundUpToLine(end) - end);
  }
}

absl::StatusOr<RunTimes> ScheduledPlan::RunSteps(const RunBuffers& buffers,
                                                 size_t begin,
                                                 size_t end) const {
  UseThreads(threads_);
  return Guard("execution", [&]() -> absl::StatusOr<RunTimes> {
    std::unique_ptr<Session> session = TakeSession();
    std::vector<std::byte*> addresses;
    addresses.reserve(schedule().buffers().size());
    for (size_t i = 0; i < schedule().buffers().size(); ++i) {
      addresses.push_back(AddressOf(i, buffers));
    }
    const RunContext context(addresses, threads_);
    if (begin == 0 && placed_.tape.area == Area::kResult) {
      FillTapeGaps(CallersBytes(placed_.tape, buffers));
    }
    RunTimes times;
    absl::Time before = SteadyNow();
    for (size_t i = begin; i < end; ++i) {
      const Step& step = steps()[i];
      const bool is_done =
          placed_.prepared.prepares[i] && buffers.weight_is_prepared;
      const bool is_skipped = step.only_if != kNoBuffer &&
                              *context.Read<int32_t>(step.only_if) == 0;
      if (is_done || is_skipped) continue;
      if (step.check) RETURN_IF_ERROR(step.check(context));
      if (step.function) {
        step.function(context);
      } else {
        session->calls[i].Execute(step, primitives_[i], context,
                                  session->stream);
      }
      const absl::Time after = SteadyNow();
      AddTime(step, after - before, &times);
      times.reference_steps += is_reference_[i] ? 1 : 0;
      before = after;
    }
    session->stream.wait();
    MutexLock lock(&mutex_);
    idle_.push_back(std::move(session));
    return times;
  });
}

}  // namespace convgrad::onednn
