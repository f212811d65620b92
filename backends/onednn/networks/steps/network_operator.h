// `NetworkOperator` is one row of oneDNN's table of operators. Each kind of
// group has a source file in one of the folders below. The file also has the
// rows of its operators.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "backends/core/program/program.h"
#include "backends/core/program/program_shapes.h"
#include "backends/onednn/networks/schedule/network_groups.h"

namespace convgrad::onednn {

// One operator.
struct NetworkOperator {
  Operator op;
  // Returns the group of these steps, whose first step has this operator.
  std::unique_ptr<NetworkGroup> (*make)(const convgrad::Program& program,
                                        const ProgramShapes& shapes,
                                        const GroupSteps& steps);
  // Checks whether the group can be made. Null: it always can.
  // Errors: kUnimplemented.
  absl::Status (*check)(const ProgramStep& step, const ProgramShapes& shapes,
                        const std::string& path) = nullptr;
  // Returns an upper limit of the bytes of the tables that the group makes for
  // a step. Null: it makes none.
  int64_t (*table_bytes)(const ProgramStep& step, const ProgramShapes& shapes,
                         bool has_backward) = nullptr;
};

// Return the rows of the table; each source file has a function.
std::vector<NetworkOperator> NetworkConvolutions();
std::vector<NetworkOperator> NetworkLinear();
std::vector<NetworkOperator> NetworkNorms();
std::vector<NetworkOperator> NetworkActivations();
std::vector<NetworkOperator> NetworkArithmetic();
std::vector<NetworkOperator> NetworkPoolings();
std::vector<NetworkOperator> NetworkReductions();
std::vector<NetworkOperator> NetworkGroupNorm();
std::vector<NetworkOperator> NetworkCopies();
std::vector<NetworkOperator> NetworkMoves();
std::vector<NetworkOperator> NetworkViews();
std::vector<NetworkOperator> NetworkRowNorms();
std::vector<NetworkOperator> NetworkSoftmax();
std::vector<NetworkOperator> NetworkMatmul();
std::vector<NetworkOperator> NetworkAttention();
std::vector<NetworkOperator> NetworkNormalize();
std::vector<NetworkOperator> NetworkDropout();
std::vector<NetworkOperator> NetworkWhere();
std::vector<NetworkOperator> NetworkElementLosses();
std::vector<NetworkOperator> NetworkCrossEntropy();

// Makes a group from its steps, or from a single step, with the program's
// shapes if it needs them.
template <typename Group>
std::unique_ptr<NetworkGroup> MakeOfStep(const convgrad::Program& program,
                                         const ProgramShapes& shapes,
                                         const GroupSteps& steps) {
  const ProgramStep& step = program.steps[steps.first];
  if constexpr (std::is_constructible_v<Group, const ProgramStep&>) {
    return std::make_unique<Group>(step);
  } else if constexpr (std::is_constructible_v<Group, const convgrad::Program&,
                                               const GroupSteps&>) {
    return std::make_unique<Group>(program, steps);
  } else {
    return std::make_unique<Group>(step, shapes);
  }
}

// Make the group of a single convolution, and of a convolution with fused
// steps. `others` are the groups of these steps without the convolution.
std::unique_ptr<NetworkGroup> MakeConvolution(const ProgramStep& step);
std::unique_ptr<NetworkGroup> MakeFusedConvolution(
    const convgrad::Program& program, const ProgramShapes& shapes,
    const GroupSteps& steps, std::vector<std::unique_ptr<NetworkGroup>> others);

}  // namespace convgrad::onednn
