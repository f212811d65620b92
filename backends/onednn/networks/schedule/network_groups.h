// `FindGroups` divides a program's steps into groups of fused steps. The values
// between the steps of a group are never written.
#pragma once

#include <string>
#include <vector>

#include "backends/onednn/networks/schedule/network_builder.h"

namespace convgrad::onednn {

// Fused steps of a program. Forward is called first, then Backward, if the
// result has a gradient. Both append to the builder's schedule, which fails
// with kUnimplemented if the library lacks an implementation.
class NetworkGroup {
 public:
  virtual ~NetworkGroup() = default;
  virtual void Forward(NetworkBuilder* builder) = 0;
  virtual void Backward(NetworkBuilder* builder) = 0;

 protected:
  NetworkGroup() = default;
  NetworkGroup(const NetworkGroup&) = delete;
  NetworkGroup& operator=(const NetworkGroup&) = delete;
};

// The steps of a group, by index into Program::steps.
struct GroupSteps {
  // The only step, or the batch_norm or add that comes before the others.
  size_t first = 0;
  // In the place of a step that the group doesn't have.
  static constexpr size_t kNone = static_cast<size_t>(-1);
  // An add of the first step's result.
  size_t add = kNone;
  // A relu; directly after a batch_norm also a relu6; in a group with a
  // convolution any activation of EndsConvolution.
  size_t activation = kNone;
  // A convolution directly before the first step, or before one of its addends.
  size_t convolution = kNone;

  // Returns the group's steps in execution order.
  std::vector<size_t> members() const;
  size_t last() const {
    return activation != kNone ? activation : add != kNone ? add : first;
  }
};

// The kinds of steps that are fused.
enum class Fusion {
  kNone,
  // Steps between which a backward needs no value.
  kOfTraining,
  // Also convolutions with the steps after them: a batch_norm of running
  // statistics, an add, an activation.
  kOfInference,
};
// Returns kOfInference for a forward without a tape, kNone if the request
// forbids fusion, and otherwise kOfTraining.
Fusion FusionOf(const ProgramRequest& request);

// Returns the groups of a program in execution order: each after the groups
// whose results it uses. Fusion depends only on the program and its shapes.
std::vector<GroupSteps> FindGroups(const convgrad::Program& program,
                                   const ProgramShapes& shapes, Fusion fusion);

// Returns the groups as names of their steps' results, for Plan::groups.
std::vector<std::vector<std::string>> NamesOf(
    const convgrad::Program& program, const std::vector<GroupSteps>& groups);

// Returns the values within groups, which are never written.
std::vector<std::string> HiddenValues(const convgrad::Program& program,
                                      const ProgramShapes& shapes,
                                      Fusion fusion);

// Returns whether a convolution at inference is fused with this activation.
bool EndsConvolution(Operator op);

// Returns whether a step has two operands with the same dims.
bool HasEqualShapes(const ProgramStep& step, const ProgramShapes& shapes);

}  // namespace convgrad::onednn
