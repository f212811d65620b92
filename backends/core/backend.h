// `Backend` is the interface of every backend: a pure support check, a slow
// Plan and a fast Run. The conformance suite under tests/conformance tests it.
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
#include "backends/core/operation.h"

namespace convgrad {

enum class Result;

// Buffers of one Run. The caller owns them. Each holds exactly
// ByteSize(descriptor) bytes and is aligned to 64 bytes. Buffers don't overlap,
// except that operands may share one. The pointer of an empty tensor may be
// null.
struct RunBuffers {
  explicit RunBuffers(size_t operand_count = 0) : operands(operand_count) {}

  // By position in Operation::OperandUses(); null if the operation has no
  // operand there. The bytes of I64 operands, which are indices, don't change
  // during a run. All other bytes may change, because a client can write to a
  // shared region at any time. A plan must not compute addresses or sizes from
  // them.
  std::vector<const void*> operands;
  // By position in Operation::ResultUses(). Initial contents are undefined.
  std::vector<void*> results;
  // At least Plan::scratch_bytes(), aligned to 64 bytes, contents undefined.
  absl::Span<std::byte> scratch;
  // Empty, or Plan::prepared_weight_bytes() aligned to 64 bytes. The plan
  // stores its own form of the operands at Operation::weight_positions() here.
  // A later run with equal weight bytes passes it again with
  // `weight_is_prepared` and skips the conversion. Complete when the run has
  // ended.
  absl::Span<std::byte> prepared_weight;
  bool weight_is_prepared = false;
};

// How the time of one Run was spent.
struct RunTimes {
  // Layout and dtype changes, masks and epilogues; on a device part of
  // `compute`.
  absl::Duration reorder = absl::ZeroDuration();
  // Arithmetic in the library.
  absl::Duration compute = absl::ZeroDuration();
  // Copies between host and device, except time that overlaps `compute`.
  absl::Duration transfer = absl::ZeroDuration();
  int64_t transferred_bytes = 0;
  // Only for a network: `compute` by kind of step, e.g. "conv forward". The
  // names are a small fixed set with static lifetime.
  std::map<absl::string_view, absl::Duration> steps;
  // Steps that the library computed by its reference implementation: plain
  // loops, which may take a thousand times as long.
  int64_t reference_steps = 0;

  RunTimes& operator+=(const RunTimes& other);
};

// Steps of a program that a plan computes together. It rounds once, when it
// writes the result of the last one.
struct FusedSteps {
  // The steps' results, by name.
  std::vector<std::string> values;
  // Whether the convolution among them is computed by Winograd's algorithm
  // (ProgramRequest::fast).
  bool is_fast = false;
};

// A prepared operation. Immutable; thread-safe: several threads may Run one
// plan concurrently, each with its own buffers and scratch. Run and MakePlan
// configure the calling thread for the options' number of threads.
class Plan {
 public:
  virtual ~Plan() = default;

  // Computes all results. Writes every byte of every result and nothing else.
  // Deterministic: the same operation, operand bytes and options give the same
  // result bytes.
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

  // Returns the bytes of scratch that Run needs.
  virtual int64_t scratch_bytes() const = 0;
  // Returns the size of the weights' prepared form, a function of the weights'
  // bytes alone; 0 if Run uses the weights unchanged or prepares them piece by
  // piece.
  virtual int64_t prepared_weight_bytes() const { return 0; }
  // Returns the bytes of the tape that Run writes or reads, if the operation
  // has one (ProgramOperation).
  virtual int64_t tape_bytes() const { return 0; }
  // Returns the groups of a program's fused steps in execution order. Empty:
  // every step is a group of its own.
  virtual std::vector<FusedSteps> groups() const { return {}; }
  // Returns the steps that RunTimes::reference_steps counts, for people, e.g.
  // "conv forward by ref:any".
  virtual std::vector<std::string> reference_steps() const { return {}; }
  // Returns the bytes that the plan itself holds; the plan cache counts them.
  virtual int64_t resident_bytes() const = 0;
  // Returns the implementations for people, one name per pass, e.g.
  // "jit:avx512_core".
  virtual absl::string_view implementation() const = 0;
};

// Settings of a plan.
struct PlanOptions {
  // Number of threads that will run the plan, >= 1. Part of the plan's
  // identity, because it determines how reductions are split.
  int threads = 1;
  // Index of the backend's device that will run the plan; 0 if it has none.
  int device = 0;
  // If true, 16-bit tensors are converted and computed in f32 even if the
  // backend has a faster implementation.
  bool compute_in_f32 = false;
  // The implementation() of another plan, whose implementations to choose where
  // they support this operation. Empty: choose freely.
  absl::string_view like = {};
};

// A backend's properties on this machine, for GetCapabilities and the metrics.
// Lists are closed: the backend answers everything else with UNIMPLEMENTED.
struct BackendCapabilities {
  std::string version;      // of the library; "" if none
  std::string description;  // e.g. CPU features or device name
  // Features that it uses; only for CPU backends.
  std::vector<std::string> cpu_features;
  std::vector<Result> results;  // of convolutions
  std::vector<DataType> dtypes;
  // The dtypes in which it computes; it converts others to f32 and back.
  std::vector<DataType> native_dtypes;
  std::vector<Layout> layouts;
  int max_spatial_rank = 3;
  // Valid requests that it refuses, one phrase each.
  std::vector<std::string> gaps;
  // Wrong results that the self-proof found on this machine, and what the
  // server does instead, one phrase each, e.g. "f16 output with residual in
  // NCX/OIX: by way of f32". The list grows while the process runs.
  std::vector<std::string> failed_proofs;
};

// Plans operations for one kind of hardware. Thread-safe.
class Backend {
 public:
  virtual ~Backend() = default;

  // Returns the backend's name in requests and metrics, e.g. "onednn".
  virtual absl::string_view name() const = 0;

  virtual BackendCapabilities capabilities() const = 0;

  // Returns the nominal multiply-adds per second of a modest machine with
  // `threads` threads. A constant, never measured, because the slicing of long
  // work, and so the result bits, depend on it.
  virtual double nominal_macs_per_second(int threads) const {
    return 25e9 * threads;
  }

  // Returns OK if MakePlan can plan `operation`, as far as that is known
  // without planning. Fast; uses no device. Requires: a valid operation.
  // Errors: kUnimplemented naming the missing feature; kFailedPrecondition
  // naming what this machine computes wrongly.
  virtual absl::Status CheckSupport(const Operation& operation) const = 0;

  // Returns the bytes that MakePlan allocates: an estimate that grows with the
  // number of a program's steps, and an upper limit for tables whose sizes
  // depend on the tensors' extents. A plan's resident_bytes() counts the part
  // that it keeps. Fast. Requires: CheckSupport(operation).ok().
  virtual int64_t planning_bytes(const Operation& /*operation*/) const {
    return 0;
  }

  // Chooses algorithms, layouts and scratch. Slow (up to milliseconds).
  // Thread-safe.
  // Errors: kUnimplemented and kFailedPrecondition as CheckSupport, also for
  // reasons that only planning finds, e.g. in a GPU's library; kInternal if the
  // library fails.
  virtual absl::StatusOr<std::unique_ptr<Plan>> MakePlan(
      const Operation& operation, const PlanOptions& options) const = 0;

  // Calls `body` for ranges that together are [0, count), on the team of
  // `threads` that runs plans, and blocks until all have ended. Call it on the
  // thread that runs plans.
  virtual void ParallelFor(
      int /*threads*/, int64_t count,
      absl::FunctionRef<void(int64_t begin, int64_t end)> body) const {
    if (count > 0) body(0, count);
  }

  // Returns the number of devices. Each gets a worker that runs nothing else.
  // 0: plans compute on the cores of the calling thread.
  virtual int device_count() const { return 0; }
  // Returns whether an error has made the device permanently unusable. Fast.
  virtual bool IsLost(int /*device*/) const { return false; }
  // Returns the device's state. Takes about a millisecond.
  virtual DeviceState StateOf(int /*device*/) const { return {}; }
  // Returns the object that pins host memory for the devices; null if pinning
  // is useless. May outlive the backend.
  virtual std::shared_ptr<MemoryPinner> pinner() const { return nullptr; }

  // Returns estimated rates with `threads` per worker. Fast.
  virtual Rates rates(int /*threads*/) const { return {}; }
};

// Returns whether the backend has devices and all of them are lost.
bool IsLost(const Backend& backend);

}  // namespace convgrad
