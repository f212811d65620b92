// The groups that a program's steps are computed in. The values between the
// steps of a group are never written.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "backends/onednn/networks/schedule/network_builder.h"

namespace convgrad::onednn {

// Steps of a program that are computed together. Forward comes first, then
// Backward, if at all; both append to the builder's schedule.
class NetworkGroup {
 public:
  virtual ~NetworkGroup() = default;
  // Errors: kUnimplemented where the library has no way; kInternal.
  virtual absl::Status Forward(NetworkBuilder* builder) = 0;
  virtual absl::Status Backward(NetworkBuilder* builder) = 0;

 protected:
  NetworkGroup() = default;
  NetworkGroup(const NetworkGroup&) = delete;
  NetworkGroup& operator=(const NetworkGroup&) = delete;
};

// Which steps a group has, by index into Program::steps.
struct GroupSteps {
  // The only one, or the batch_norm or add that the others follow.
  size_t first = 0;
  // An add of the first one's result; and a relu, or a relu6 right behind a
  // batch_norm; kNone if there is none.
  static constexpr size_t kNone = static_cast<size_t>(-1);
  size_t add = kNone;
  size_t activation = kNone;
  // A convolution right in front of the first one, or of one of its addends.
  size_t convolution = kNone;

  // Those that there are, in the order that they are computed in.
  std::vector<size_t> members() const;
  size_t last() const {
    return activation != kNone ? activation : add != kNone ? add : first;
  }
};

// Which steps are fused.
enum class Fusion {
  kNone,
  // Those between which a backward needs no value.
  kOfTraining,
  // Convolutions as well, with what follows them: a batch_norm of running
  // statistics, an add, a relu or relu6.
  kOfInference,
};
// Returns kOfInference of a forward without a tape, kNone where the request
// says so, and otherwise kOfTraining.
Fusion FusionOf(const ProgramRequest& request);

// Returns the groups of a program, in an order that has each after those whose
// results it uses. Steps are fused by the program and its shapes alone.
std::vector<GroupSteps> FindGroups(const convgrad::Program& program,
                                   const ProgramShapes& shapes, Fusion fusion);

// Returns the groups by the results of their steps, for Plan::groups.
std::vector<std::vector<std::string>> NamesOf(
    const convgrad::Program& program, const std::vector<GroupSteps>& groups);

// Returns the values that are never written, because they lie within a group.
std::vector<std::string> HiddenValues(const convgrad::Program& program,
                                      const ProgramShapes& shapes,
                                      Fusion fusion);

// Returns whether a step has two operands, and these have the same dims.
bool HasEqualShapes(const ProgramStep& step, const ProgramShapes& shapes);

}  // namespace convgrad::onednn
