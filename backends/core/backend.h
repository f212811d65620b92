// What every backend is: a pure support check, a slow Plan and a fast Run. The
// conformance suite under tests/conformance is written against this header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "backends/core/device.h"
#include "backends/core/operand_gather.h"
#include "backends/core/operation.h"

namespace convgrad {

enum class Result;

// Buffers of one Run. All of them belong to the caller, hold exactly
// ByteSize(descriptor) bytes, are aligned to 64 bytes and don't overlap, but
// that operands may share one buffer. An empty tensor's pointer may be null.
struct RunBuffers {
  explicit RunBuffers(size_t operand_count = 0)
      : operands(operand_count), is_gathered(operand_count) {}

  // By position in Operation::OperandUses(); null where the operation has none.
  // The bytes of I64 operands, which are indices, don't change during a run.
  // Those of other operands and of results may: a client can write to a shared
  // region at any time. No address and no size may follow from them.
  std::vector<const void*> operands;
  // Of them, those that aren't the operand's bytes but what the plan's gather
  // made of them.
  std::vector<bool> is_gathered;
  // By position in Operation::ResultUses(). Need no initial value.
  std::vector<void*> results;
  // At least Plan::scratch_bytes(), aligned to 64 bytes, contents undefined.
  absl::Span<std::byte> scratch;
  // Empty, or Plan::prepared_weight_bytes() aligned to 64 bytes, where the plan
  // puts its own form of the operands at Operation::weight_positions() for
  // later runs: those with equal bytes there find it if `weight_is_prepared`,
  // and don't make it again. It is whole when the run has ended.
  absl::Span<std::byte> prepared_weight;
  bool weight_is_prepared = false;
};

// Where the time of one Run went.
struct RunTimes {
  // Layout and dtype changes, masks, epilogues; on a device part of `compute`.
  absl::Duration reorder = absl::ZeroDuration();
  // The library's arithmetic.
  absl::Duration compute = absl::ZeroDuration();
  // Between host and device, as far as it didn't pass beside `compute`.
  absl::Duration transfer = absl::ZeroDuration();
  int64_t transferred_bytes = 0;
  // Of a network, where `compute` went, by kind of step: "conv forward". One of
  // a few names, which live as long as the process.
  std::map<absl::string_view, absl::Duration> steps;

  RunTimes& operator+=(const RunTimes& other);
};

// A prepared operation. Immutable; thread-safe: several threads may Run one
// plan at once, each with buffers and scratch of its own. Run and MakePlan set
// the calling thread up for the options' threads.
class Plan {
 public:
  virtual ~Plan() = default;

  // Computes all results. Every byte of every result is written, and nothing
  // else. Same operation, same operand bytes, same options: same result bytes.
  // Errors: kInternal if the library fails.
  virtual absl::StatusOr<RunTimes> Run(const RunBuffers& buffers) const = 0;

  // Returns the number of time quanta that Run is cut into; at least 1. The
  // thread may run other plans between two quanta.
  virtual int quanta() const { return 1; }
  // Runs one quantum. The caller runs the quanta of a run in order, with the
  // same buffers, and keeps all their contents in between, scratch included. An
  // error ends the run.
  virtual absl::StatusOr<RunTimes> RunQuantum(const RunBuffers& buffers,
                                              int /*quantum*/) const {
    return Run(buffers);
  }

  // Bytes of scratch that Run needs.
  virtual int64_t scratch_bytes() const = 0;
  // Bytes of the form that it brings the weights to before it computes with
  // them, a function of the weights' bytes alone; 0 if it takes them as they
  // are, or piece by piece.
  virtual int64_t prepared_weight_bytes() const { return 0; }
  // Returns the reorder of the operand at `position` that Run begins with, for
  // callers that copy the operand anyway and may do both at once, which changes
  // no bit. Null: Run needs the operand as it is. Lives as long as the plan.
  virtual const OperandGather* gather(size_t /*position*/) const {
    return nullptr;
  }
  // Bytes of the tape that Run writes or reads, where the operation has one
  // (ProgramOperation).
  virtual int64_t tape_bytes() const { return 0; }
  // Of a program: the steps that are computed together, by their results, in
  // the order that they are computed in. A value is rounded once, where its
  // group writes it: each group's last one. Empty: every step is a group of its
  // own.
  virtual std::vector<std::vector<std::string>> groups() const { return {}; }
  // Bytes that the plan itself holds, for the plan cache's bound.
  virtual int64_t resident_bytes() const = 0;
  // What computes it, e.g. "jit:avx512_core", one name per pass, for people.
  virtual absl::string_view implementation() const = 0;
};

struct PlanOptions {
  // Threads that will run the plan; part of its identity, since the split of a
  // reduction follows from it. Range: >= 1.
  int threads = 1;
  // Which of the backend's devices will run the plan; 0 if it has none.
  int device = 0;
  // Whether 16-bit tensors shall be converted and computed in f32, even where
  // the backend has a faster way.
  bool compute_in_f32 = false;
  // The implementation() of another plan: choose the same ways to compute,
  // where this operation has them. Empty: choose freely.
  absl::string_view like = {};
};

// What a backend is and can do on this machine, for GetCapabilities and the
// metrics. Lists are closed: what isn't listed is UNIMPLEMENTED.
struct BackendCapabilities {
  std::string version;                    // of the library, "" if there is none
  std::string description;                // e.g. CPU features or device name
  std::vector<std::string> cpu_features;  // that it uses; CPU backends only
  std::vector<Result> results;            // of convolutions
  std::vector<DataType> dtypes;
  // Of them, those that it computes in; others are converted to f32 and back.
  std::vector<DataType> native_dtypes;
  std::vector<Layout> layouts;
  int max_spatial_rank = 3;
  // What valid requests it refuses, one phrase each; empty if none.
  std::vector<std::string> gaps;
  // What it computed wrongly on this machine when it was proven, and what is
  // done instead, one phrase each, e.g. "f16 output with residual in NCX/OIX:
  // by way of f32". Grows while the process lives.
  std::vector<std::string> failed_proofs;
};

// Thread-safe.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual absl::string_view name() const = 0;

  virtual BackendCapabilities capabilities() const = 0;

  // Multiply-adds a second that a modest machine does on `threads` threads. A
  // constant, never measured: how long work is cut into slices, and so its
  // bits, follow from it.
  virtual double nominal_macs_per_second(int threads) const {
    return 25e9 * threads;
  }

  // Returns OK if MakePlan can plan `operation`, as far as can be told without
  // planning it. Fast: no device. Requires: a valid operation.
  // Errors: kUnimplemented naming what is missing; kFailedPrecondition naming
  // what this machine was found to compute wrongly.
  virtual absl::Status CheckSupport(const Operation& operation) const = 0;

  // Returns at least the bytes that MakePlan takes for tables whose sizes
  // follow from the extents of tensors. A plan's resident_bytes() counts what
  // it keeps of them. Fast. Requires: CheckSupport(operation).ok().
  virtual int64_t planning_bytes(const Operation& /*operation*/) const {
    return 0;
  }

  // Chooses algorithms, layouts and scratch. Slow (up to milliseconds). Any
  // thread may call it.
  // Errors: kUnimplemented and kFailedPrecondition as CheckSupport, or where
  // only planning shows it, as of a GPU's library; kInternal if the library
  // fails.
  virtual absl::StatusOr<std::unique_ptr<Plan>> MakePlan(
      const Operation& operation, const PlanOptions& options) const = 0;

  // Calls `body` for ranges that together are [0, count), on the team of
  // `threads` that plans run on, and waits. To be called on the thread that
  // runs plans.
  virtual void ParallelFor(
      int /*threads*/, int64_t count,
      absl::FunctionRef<void(int64_t begin, int64_t end)> body) const {
    if (count > 0) body(0, count);
  }

  // Its devices, each of which gets a worker that runs nothing else; 0: it
  // computes on the cores of the thread that runs a plan.
  virtual int device_count() const { return 0; }
  // Whether an error took the device out for good. Fast.
  virtual bool IsLost(int /*device*/) const { return false; }
  // Takes a millisecond.
  virtual DeviceState StateOf(int /*device*/) const { return {}; }
  // Null: there is nothing to pin memory for. Doesn't need the backend.
  virtual std::shared_ptr<MemoryPinner> pinner() const { return nullptr; }

  // Returns what to expect of it, with `threads` per worker. Fast.
  virtual Rates rates(int /*threads*/) const { return {}; }
};

// Returns whether the backend has devices and all of them are lost.
bool IsLost(const Backend& backend);

}  // namespace convgrad
