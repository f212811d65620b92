#include "backends/onednn/convolutions/onednn_program.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/onednn/library/onednn_threads.h"
#include "backends/onednn/library/onednn_types.h"

namespace convgrad::onednn {
namespace {

int64_t RoundUp(int64_t bytes) {
  constexpr int64_t kAlignment = 64;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// What a primitive with its generated code holds, roughly: measured as growth
// of the resident size over 500 ResNet-50 plans of oneDNN 3.2.
constexpr int64_t kPrimitiveBytes = 64 << 10;

}  // namespace

int StepContext::threads() const { return program_.threads_; }

const void* StepContext::Read(const Location& location) const {
  const auto place = [&]() -> const void* {
    switch (location.area) {
      case Location::Area::kOperand:
        return buffers_.operands[location.index];
      case Location::Area::kResult:
        return buffers_.results[location.index];
      case Location::Area::kPreparedWeight:
        return buffers_.prepared_weight.empty()
                   ? buffers_.scratch.data() + program_.scratch_bytes_
                   : buffers_.prepared_weight.data();
      case Location::Area::kGathered:
        if (buffers_.is_gathered[location.index]) {
          return buffers_.operands[location.index];
        }
        return buffers_.scratch.data() +
               program_.gather_places_[location.index];
      case Location::Area::kScratch:
        break;
    }
    return buffers_.scratch.data();
  };
  return static_cast<const std::byte*>(place()) + location.byte_offset;
}

void* StepContext::Write(const Location& location) const {
  return const_cast<void*>(Read(location));
}

Location Program::Allocate(int64_t bytes) {
  const Location location{Location::Area::kScratch, 0, scratch_bytes_};
  scratch_bytes_ += RoundUp(bytes);
  return location;
}

Location Program::AllocatePreparedWeight(int64_t bytes) {
  const Location location{Location::Area::kPreparedWeight, 0,
                          prepared_weight_bytes_};
  prepared_weight_bytes_ += RoundUp(bytes);
  return location;
}

Location Program::AllocateGathered(Operand operand, ScatteredReorder gather) {
  const auto index = static_cast<size_t>(operand);
  const Location scratch = Allocate(gather.destination_bytes());
  gather_places_[index] = scratch.byte_offset;
  gathers_[index] = std::move(gather);
  return {Location::Area::kGathered, static_cast<int>(operand), 0};
}

const OperandGather* Program::gather(size_t position) const {
  // Who else reads the operand needs it as it is.
  return gathers_[position] && readers_[position] == 1 ? &*gathers_[position]
                                                       : nullptr;
}

void Program::Add(Step step) {
  scratchpad_bytes_ = std::max(
      scratchpad_bytes_, static_cast<int64_t>(step.scratchpad.get_size()));
  const auto count = [this](const Location& location) {
    if (location.area == Location::Area::kOperand) ++readers_[location.index];
  };
  for (const Argument& argument : step.arguments) count(argument.location);
  for (const Location& location : step.reads) count(location);
  steps_.push_back(std::move(step));
}

void Program::Add(std::vector<Location> reads,
                  std::function<void(const StepContext&)> function,
                  const Location& purpose) {
  Add({.purpose = purpose,
       .reads = std::move(reads),
       .function = std::move(function)});
}

int64_t Program::resident_bytes() const {
  return static_cast<int64_t>(steps_.size()) * kPrimitiveBytes;
}

struct Program::Session {
  // The library's memory objects of a step, with where each one lies.
  struct Call {
    std::vector<dnnl::memory> memories;
    std::vector<Location> locations;
    std::vector<dnnl_exec_arg_t> arguments;

    void Add(int arg, const dnnl::memory::desc& desc,
             const Location& location) {
      memories.emplace_back(desc, CpuEngine(), nullptr);
      locations.push_back(location);
      arguments.push_back({arg, memories.back().get()});
    }

    void Execute(const dnnl::primitive& primitive, const StepContext& context,
                 const dnnl::stream& stream) {
      for (size_t i = 0; i < memories.size(); ++i) {
        memories[i].set_data_handle(context.Write(locations[i]));
      }
      dnnl::error::wrap_c_api(
          dnnl_primitive_execute(primitive.get(), stream.get(),
                                 static_cast<int>(arguments.size()),
                                 arguments.data()),
          "could not execute a primitive");
    }
  };

  dnnl::stream stream{CpuEngine()};
  std::vector<Call> calls;  // by step
};

Program::Program(int threads) : threads_(threads) {}
Program::~Program() = default;

void Program::AppendImplementation(absl::string_view word) {
  absl::StrAppend(&implementation_, implementation_.empty() ? "" : " ", word);
}

std::unique_ptr<Program::Session> Program::MakeSession() const {
  auto session = std::make_unique<Session>();
  for (const Step& step : steps_) {
    Session::Call& call = session->calls.emplace_back();
    for (const Argument& argument : step.arguments) {
      call.Add(argument.arg, argument.desc, argument.location);
    }
    if (step.scratchpad.get_size() > 0) {
      call.Add(DNNL_ARG_SCRATCHPAD, step.scratchpad,
               {Location::Area::kScratch, 0,
                scratch_bytes_ + prepared_weight_bytes_});
    }
  }
  return session;
}

std::unique_ptr<Program::Session> Program::TakeSession() const {
  MutexLock lock(&mutex_);
  if (idle_.empty()) return nullptr;
  std::unique_ptr<Session> session = std::move(idle_.back());
  idle_.pop_back();
  return session;
}

void Program::ReturnSession(std::unique_ptr<Session> session) const {
  MutexLock lock(&mutex_);
  idle_.push_back(std::move(session));
}

bool Program::IsDone(const Step& step, const RunBuffers& buffers) const {
  switch (step.purpose.area) {
    case Location::Area::kPreparedWeight:
      return buffers.weight_is_prepared;
    case Location::Area::kGathered:
      return buffers.is_gathered[step.purpose.index];
    default:
      return false;
  }
}

RunTimes Program::RunIn(Session* session, const RunBuffers& buffers) const {
  const StepContext context(*this, buffers);
  RunTimes times;
  absl::Time before = absl::Now();
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    if (IsDone(step, buffers)) continue;
    if (step.function) {
      step.function(context);
    } else {
      session->calls[i].Execute(step.primitive, context, session->stream);
    }
    const absl::Time after = absl::Now();
    (step.is_compute ? times.compute : times.reorder) += after - before;
    before = after;
  }
  session->stream.wait();
  return times;
}

absl::StatusOr<RunTimes> Program::Run(const RunBuffers& buffers) const {
  UseThreads(threads_);
  RunTimes times;
  RETURN_IF_ERROR(Guard("execution", [&] {
    std::unique_ptr<Session> session = TakeSession();
    if (session == nullptr) session = MakeSession();
    times = RunIn(session.get(), buffers);
    ReturnSession(std::move(session));
  }));
  return times;
}

}  // namespace convgrad::onednn
