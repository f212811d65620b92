#include "tests/bench/caller.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "client/cpp/placed_call.h"
#include "tests/bench/subject.h"

namespace convgrad::bench {
namespace {

template <typename T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) Fail(value.status());
  return *std::move(value);
}

// Returns bytes that are small numbers in every dtype.
AlignedBuffer Filled(int64_t bytes) {
  AlignedBuffer buffer = Must(AlignedBuffer::Allocate(bytes));
  std::memset(buffer.data(), 0x3c, bytes);
  return buffer;
}

class MessageCaller : public Caller {
 public:
  MessageCaller(const std::string& server, const ConvOperation& operation)
      : client_(Must(Client::Connect({server}))) {
    call_.operation = operation;
    for (Operand which : kAllOperands) {
      if (!operation.operand(which)) continue;
      memory_.push_back(Filled(*ByteSize(*operation.operand(which))));
      call_.operands[static_cast<size_t>(which)] = memory_.back().bytes();
    }
  }

  absl::Duration Run() override {
    const absl::Time start = absl::Now();
    reply_ = Send();
    const absl::Duration took = absl::Now() - start;
    reply_.results.clear();
    return took;
  }

  std::string StagesAsJson() const override {
    const v1::StageTimes& s = reply_.report.seconds();
    return absl::StrFormat(
        ", \"stages_ms\": {\"receive\": %.3f, \"decode\": %.3f, \"queue\": "
        "%.3f, \"reorder\": %.3f, \"compute\": %.3f, \"encode\": %.3f, "
        "\"total\": %.3f}",
        s.receive() * 1e3, s.decode() * 1e3, s.queue() * 1e3, s.reorder() * 1e3,
        s.compute() * 1e3, s.encode() * 1e3, s.total() * 1e3);
  }

 protected:
  virtual OperationReply Send() { return Must(client_->Run(call_)); }

  const std::unique_ptr<Client> client_;
  OperationCall call_;

 private:
  std::vector<AlignedBuffer> memory_;
  OperationReply reply_;
};

class StreamCaller final : public MessageCaller {
 public:
  using MessageCaller::MessageCaller;

 private:
  OperationReply Send() override {
    return Must(client_->RunStreamed(call_, 0));
  }
};

class RegionCaller final : public MessageCaller {
 public:
  RegionCaller(const std::string& server, const std::string& regions,
               const ConvOperation& operation, bool copies)
      : MessageCaller(server, operation),
        copies_(copies),
        own_(call_.operands) {
    PlacedCall placed = Must(PlaceInRegion(call_, regions));
    region_ = std::move(placed.region);
    call_ = std::move(placed.call);
    for (const auto& destination : call_.destinations) {
      results_.push_back(Filled(std::ssize(destination)));
    }
  }

 private:
  OperationReply Send() override {
    if (!copies_) return Must(client_->Run(call_));
    for (size_t i = 0; i < own_.size(); ++i) {
      if (own_[i].empty()) continue;
      std::memcpy(const_cast<std::byte*>(call_.operands[i].data()),
                  own_[i].data(), own_[i].size());
    }
    OperationReply reply = Must(client_->Run(call_));
    for (size_t i = 0; i < results_.size(); ++i) {
      std::memcpy(results_[i].data(), call_.destinations[i].data(),
                  call_.destinations[i].size());
    }
    return reply;
  }

  const bool copies_;
  const std::array<absl::Span<const std::byte>, kOperandCount> own_;
  std::unique_ptr<SharedRegion> region_;
  std::vector<AlignedBuffer> results_;
};

}  // namespace

std::unique_ptr<Caller> MakeMessageCaller(const std::string& server,
                                          const ConvOperation& operation) {
  return std::make_unique<MessageCaller>(server, operation);
}

std::unique_ptr<Caller> MakeStreamCaller(const std::string& server,
                                         const ConvOperation& operation) {
  return std::make_unique<StreamCaller>(server, operation);
}

std::unique_ptr<Caller> MakeRegionCaller(const std::string& server,
                                         const std::string& regions,
                                         const ConvOperation& operation,
                                         bool copies) {
  return std::make_unique<RegionCaller>(server, regions, operation, copies);
}

}  // namespace convgrad::bench
