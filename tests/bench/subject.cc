#include "tests/bench/subject.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/time/clock.h"

namespace convgrad::bench {
namespace {

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

class BackendRun final : public Subject {
 public:
  BackendRun(const Backend& backend, const ConvOperation& op,
             const PlanOptions& options) {
    auto plan = backend.MakePlan(op, options);
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
  RunBuffers buffers_{kOperandCount};
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

}  // namespace

void Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

std::unique_ptr<Subject> MakeBackendSubject(const Backend& backend,
                                            const ConvOperation& operation,
                                            const PlanOptions& options) {
  return std::make_unique<BackendRun>(backend, operation, options);
}

std::unique_ptr<Subject> MakeServerSubject(Client* client,
                                           const ConvOperation& operation) {
  return std::make_unique<ServerRun>(client, operation);
}

}  // namespace convgrad::bench
