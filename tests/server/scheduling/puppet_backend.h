// `PuppetBackend` is a backend that a test controls: its runs start, wait and
// end when the test says so.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "backends/core/backend.h"
#include "backends/core/convolution/conv_operation.h"
#include "backends/core/mutex.h"
#include "backends/core/status.h"
#include "backends/registry.h"

namespace convgrad {

// Returns a tiny valid forward operation; operations with other `channels` and
// `batch` differ.
inline ConvOperation TinyOperation(int64_t channels = 1, int64_t batch = 1) {
  ConvOperation operation;
  operation.problem.in_channels = channels;
  operation.problem.batch = batch;
  const ConvProblem& problem = operation.problem;
  operation.operand(Operand::kInput) = {DataType::kF32, Layout::kNCX,
                                        InputDims(problem)};
  operation.operand(Operand::kWeight) = {DataType::kF32, Layout::kOIX,
                                         WeightDims(problem)};
  operation.results = {
      {Result::kOutput, {DataType::kF32, Layout::kNCX, OutputDims(problem)}}};
  return operation;
}

// `PuppetStrings` controls a puppet and records its runs. Thread-safe.
class PuppetStrings {
 public:
  // From now on runs (or plans being made) stop until Release.
  void HoldRuns() {
    MutexLock lock(&mutex_);
    hold_runs_ = true;
  }
  void HoldPlans() {
    MutexLock lock(&mutex_);
    hold_plans_ = true;
  }
  void Release() {
    MutexLock lock(&mutex_);
    hold_runs_ = hold_plans_ = false;
    changed_.NotifyAll();
  }
  // Lets the one held run continue; later runs stop again.
  void ReleaseOneRun() {
    MutexLock lock(&mutex_);
    ++released_;
    changed_.NotifyAll();
  }
  void AwaitRuns(int count) {
    MutexLock lock(&mutex_);
    while (runs_ < count) changed_.Wait(&mutex_);
  }
  void AwaitPlans(int count) {
    MutexLock lock(&mutex_);
    while (plans_ < count) changed_.Wait(&mutex_);
  }
  // The number of runs that have started.
  int runs() {
    MutexLock lock(&mutex_);
    return runs_;
  }
  int plans() {
    MutexLock lock(&mutex_);
    return plans_;
  }

  // Makes the device lost, as a sticky error would. Its driver hangs from then
  // on if `hangs`, until ReleaseDriver.
  void LoseDevice(int device, bool hangs = false) {
    MutexLock lock(&mutex_);
    lost_.insert(device);
    driver_hangs_ = hangs;
  }
  void ReleaseDriver() {
    MutexLock lock(&mutex_);
    driver_hangs_ = false;
    changed_.NotifyAll();
  }
  void OnStateRead() {
    MutexLock lock(&mutex_);
    while (driver_hangs_) changed_.Wait(&mutex_);
  }
  bool IsLost(int device) {
    MutexLock lock(&mutex_);
    return lost_.count(device) > 0;
  }

  void OnRun() {
    MutexLock lock(&mutex_);
    ++runs_;
    changed_.NotifyAll();
    while (hold_runs_ && released_ == 0) changed_.Wait(&mutex_);
    if (released_ > 0) --released_;
  }
  // The options of the last plan.
  PlanOptions plan_options() {
    MutexLock lock(&mutex_);
    return plan_options_;
  }
  void OnPlan(const PlanOptions& options) {
    MutexLock lock(&mutex_);
    ++plans_;
    plan_options_ = options;
    changed_.NotifyAll();
    while (hold_plans_) changed_.Wait(&mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool hold_runs_ ABSL_GUARDED_BY(mutex_) = false;
  bool hold_plans_ ABSL_GUARDED_BY(mutex_) = false;
  int released_ ABSL_GUARDED_BY(mutex_) = 0;
  int runs_ ABSL_GUARDED_BY(mutex_) = 0;
  int plans_ ABSL_GUARDED_BY(mutex_) = 0;
  PlanOptions plan_options_ ABSL_GUARDED_BY(mutex_);
  std::set<int> lost_ ABSL_GUARDED_BY(mutex_);
  bool driver_hangs_ ABSL_GUARDED_BY(mutex_) = false;
};

// The behaviour of a puppet; set before its use.
struct PuppetTraits {
  std::string name = "puppet";
  absl::Status support = {};
  absl::Status plan_status = {};
  absl::Status run_status = {};
  bool throws = false;
  int64_t scratch_bytes = 0;
  int64_t resident_bytes = 100;
  int64_t planning_bytes = 0;
  double macs_per_second = 25e9;
  RunTimes run_times = {.reorder = absl::Milliseconds(2),
                        .compute = absl::Milliseconds(3),
                        .steps = {}};
  int devices = 0;
  Rates rates = {};
  int quanta = 1;  // Of each plan; each is a run.
  // Called when a plan is destroyed; may be null.
  std::function<void()> on_free = nullptr;
};

class PuppetPlan final : public Plan {
 public:
  PuppetPlan(const Operation& operation, PuppetTraits traits, int device,
             PuppetStrings* strings)
      : traits_(std::move(traits)), device_(device), strings_(strings) {
    for (const TensorUse& use : operation.ResultUses()) {
      result_bytes_.push_back(*ByteSize(*use.tensor));
    }
  }

  ~PuppetPlan() override {
    if (traits_.on_free != nullptr) traits_.on_free();
  }

  // Writes zeros.
  absl::StatusOr<RunTimes> Run(const RunBuffers& buffers) const override {
    strings_->OnRun();
    if (traits_.throws) throw std::runtime_error("the puppet's strings tore");
    if (static_cast<int64_t>(buffers.scratch.size()) < traits_.scratch_bytes) {
      return absl::InternalError("too little scratch");
    }
    for (size_t i = 0; i < buffers.results.size(); ++i) {
      std::memset(buffers.results[i], 0, result_bytes_[i]);
    }
    RETURN_IF_ERROR(traits_.run_status);
    if (strings_->IsLost(device_)) {
      return absl::UnavailableError("the puppet's device is lost");
    }
    return traits_.run_times;
  }
  int quanta() const override { return traits_.quanta; }
  int64_t scratch_bytes() const override { return traits_.scratch_bytes; }
  int64_t resident_bytes() const override { return traits_.resident_bytes; }
  absl::string_view implementation() const override { return "strings"; }

 private:
  std::vector<int64_t> result_bytes_;
  const PuppetTraits traits_;
  const int device_;
  PuppetStrings* const strings_;
};

class PuppetBackend final : public Backend {
 public:
  explicit PuppetBackend(PuppetStrings* strings, PuppetTraits traits = {})
      : traits_(std::move(traits)), strings_(strings) {}

  absl::string_view name() const override { return traits_.name; }
  BackendCapabilities capabilities() const override { return {}; }
  double nominal_macs_per_second(int /*threads*/) const override {
    return traits_.macs_per_second;
  }
  absl::Status CheckSupport(const Operation&) const override {
    return traits_.support;
  }
  int device_count() const override { return traits_.devices; }
  bool IsLost(int device) const override { return strings_->IsLost(device); }
  DeviceState StateOf(int device) const override {
    strings_->OnStateRead();
    return {"strings", IsLost(device), 1000, 400, 0.5};
  }
  Rates rates(int) const override { return traits_.rates; }
  int64_t planning_bytes(const Operation&) const override {
    return traits_.planning_bytes;
  }
  absl::StatusOr<std::unique_ptr<Plan>> MakePlan(
      const Operation& operation, const PlanOptions& options) const override {
    strings_->OnPlan(options);
    RETURN_IF_ERROR(traits_.plan_status);
    return std::make_unique<PuppetPlan>(operation, traits_, options.device,
                                        strings_);
  }

 private:
  const PuppetTraits traits_;
  PuppetStrings* const strings_;
};

// Returns a registry entry of a puppet. `name` is a literal.
inline RegisteredBackend RegisteredPuppet(absl::string_view name,
                                          PuppetStrings* strings,
                                          PuppetTraits traits = {}) {
  traits.name = std::string(name);
  std::unique_ptr<Backend> backend =
      std::make_unique<PuppetBackend>(strings, std::move(traits));
  return {name, std::move(backend)};
}

}  // namespace convgrad
