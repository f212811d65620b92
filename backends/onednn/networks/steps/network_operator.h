// One row of oneDNN's table of operators. Each kind of group has a source file
// in one of the rooms below, which also has the rows of its operators.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/core/program/program.h"
#include "backends/core/program/program_shapes.h"
#include "backends/onednn/networks/schedule/network_groups.h"

namespace convgrad::onednn {

// One operator.
struct NetworkOperator {
  Operator op;
  // Returns the group of these steps, of which the first has this operator.
  std::unique_ptr<NetworkGroup> (*make)(const convgrad::Program& program,
                                        const ProgramShapes& shapes,
                                        const GroupSteps& steps);
  // Checks whether the group can be made. Null: it always can.
  // Errors: kUnimplemented.
  absl::Status (*check)(const ProgramStep& step, const ProgramShapes& shapes,
                        const std::string& path) = nullptr;
  // Returns at least the bytes of the tables that the group makes for a step.
  // Null: it makes none.
  int64_t (*table_bytes)(const ProgramStep& step, const ProgramShapes& shapes,
                         bool has_backward) = nullptr;
};

// The rows of the table, a source file each.
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
std::vector<NetworkOperator> NetworkElementLosses();
std::vector<NetworkOperator> NetworkCrossEntropy();

// Makes a group of one step, which is all that it needs to know.
template <typename Group>
std::unique_ptr<NetworkGroup> MakeOfStep(const convgrad::Program& program,
                                         const ProgramShapes& /*shapes*/,
                                         const GroupSteps& steps) {
  return std::make_unique<Group>(program.steps[steps.first]);
}

// Makes the group of a convolution by itself, and of one with the steps that
// are fused with it. `others` is the group of these without the convolution.
std::unique_ptr<NetworkGroup> MakeConvolution(const ProgramStep& step);
std::unique_ptr<NetworkGroup> MakeFusedConvolution(
    const convgrad::Program& program, const ProgramShapes& shapes,
    const GroupSteps& steps, std::unique_ptr<NetworkGroup> others);

}  // namespace convgrad::onednn
