// `SessionDriver` is one trainer that makes random calls, some of them invalid,
// and compares their results with a model.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/end_to_end/sessions/session_model.h"

namespace convgrad {

// `RandomChanges` makes random changes of a model's tensors; sums stay exact.
// Owned by one thread.
class RandomChanges {
 public:
  // Puts with different `mark` (0 to 99) never have a common digest.
  RandomChanges(int seed, int mark) : random_(seed), mark_(mark) {}

  // Returns a change. Some changes are invalid.
  ChangeRequest Next(const ModelTensors& tensors);
  // Returns a number below `bound`.
  int Below(int bound) { return static_cast<int>(random_() % bound); }
  bool Chance(int percent) { return Below(100) < percent; }

 private:
  std::string Name(char kind) {
    return {kind, static_cast<char>('0' + Below(3))};
  }
  v1::PutTensorsRequest Put(const ModelTensors& tensors);
  v1::DropTensorsRequest Drop(const ModelTensors& tensors);
  template <typename Request>
  void AddOperand(const ModelTensors& tensors, char kind, v1::Tensor* operand,
                  Request* request);
  void AddResult(const ModelTensors& tensors, v1::Result which, char kind,
                 v1::ConvOperation* operation);
  ModelTensor RandomTensor(const std::string& name);

  std::mt19937 random_;
  const int mark_;
};

// `SessionDriver` is owned by one thread. It fails the test if server and model
// differ.
class SessionDriver {
 public:
  SessionDriver(std::shared_ptr<grpc::Channel> channel, int seed);

  // Makes some calls.
  void Step();
  // Compares all tensors, then closes the session.
  void Finish();
  int64_t calls() const { return calls_; }

 private:
  using Reply = SessionReply<std::string>;

  ChangeMetadata NextChange();
  ChangeRequest NextRequest() { return random_.Next(tensors_); }
  // Checks the reply to the change or its repeat against the model, and updates
  // the model.
  void Settle(const ChangeMetadata& change, const ChangeRequest& request,
              const Reply& reply);
  void ExpectReply(const ModelReply& expected, const ChangeRequest& request,
                   int64_t number, const Reply& reply);

  void Change();
  void Read(int64_t after);
  void RepeatSome();
  void BreakTheRules();
  void LoseTheReply();
  void Pipeline();
  void Resume();
  void ListAll();
  void Close();
  void Open();
  void Abandon();
  void CheckAbandoned();

  const std::shared_ptr<grpc::Channel> channel_;
  RandomChanges random_;
  std::unique_ptr<SessionClient> session_;
  ModelOrder order_;
  ModelTensors tensors_;
  // Recent changes, which may be repeated.
  std::vector<std::pair<ChangeMetadata, ChangeRequest>> late_;
  // Ids of sessions that get no more calls, and the time when they must have
  // ended.
  std::vector<std::pair<std::string, absl::Time>> abandoned_;
  int64_t calls_ = 0;
};

}  // namespace convgrad
