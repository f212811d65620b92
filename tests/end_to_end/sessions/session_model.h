// `ModelOrder` and `MakeChange` are a plain model of sessions: tensors in a
// map, and changes one after the other. Tests compare a server with it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/end_to_end/sessions/call_in_flight.h"

namespace convgrad {

// Returns the one convolution of the model: 1 item of 2 channels of 6, 2
// filters of 3, so that an output is 2 x 4. A name's first letter says what its
// tensor is.
//   x: (1, 2, 6), an input or its gradient
//   w: (2, 2, 3), a weight or its gradient
//   g: (1, 2, 4), an output or its gradient
v1::ConvProblem ModelProblem();
std::vector<int64_t> ModelDims(const std::string& name);

// A kept tensor of f32. Value type.
struct ModelTensor {
  std::vector<int64_t> dims;
  std::vector<float> values;  // In the order of dims, for every layout.
  bool channels_last = false;
  int64_t version = 0;
  std::string digest;  // The digest under which it can be put again; "": none.

  v1::Layout layout() const;
  // Returns the bytes in a layout.
  std::string Bytes(bool in_channels_last) const;
};

using ModelTensors = std::map<std::string, ModelTensor>;

// The answer to a change.
struct ModelReply {
  grpc::StatusCode code = grpc::StatusCode::OK;
  std::string field;  // For an error: the beginning of the field's path.
  std::vector<std::string> payloads;
};

// Makes change `number`; changes nothing if it fails.
ModelReply MakeChange(const ChangeRequest& request, int64_t number,
                      ModelTensors* tensors);

// `ModelOrder` holds the numbers, epochs and call ids of one session, and
// predicts the result of a call while no other call is in flight.
class ModelOrder {
 public:
  enum class Verdict { kRuns, kWaits, kReplays, kRefused };
  struct Judgement {
    Verdict verdict;
    // Set for kRefused.
    grpc::StatusCode code = grpc::StatusCode::OK;
    std::string reason;
    // Set for kReplays.
    std::string reply;
  };

  Judgement Judge(const ChangeMetadata& change) const;

  // `reply` is the one answer of the change.
  void Commit(const ChangeMetadata& change, const std::string& reply);
  // Called for a change that runs, or that waited when the session continued.
  void Acknowledge(int64_t number);
  void Fail() { ++epoch_; }
  // `epoch` is the epoch that the server returned: at least the next one.
  void Resume(int64_t epoch) { epoch_ = first_epoch_ = epoch; }

  int64_t number() const { return number_; }
  int64_t epoch() const { return epoch_; }
  int64_t first_epoch() const { return first_epoch_; }
  int64_t acknowledged() const { return acknowledged_; }

 private:
  int64_t number_ = 0;
  int64_t epoch_ = 1;
  int64_t first_epoch_ = 1;
  int64_t acknowledged_ = 0;
  // Call ids and replies.
  std::map<int64_t, std::pair<std::string, std::string>> replies_;
};

}  // namespace convgrad
