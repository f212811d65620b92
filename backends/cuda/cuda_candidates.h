// The ways in which cuDNN may compute one pass, the best first, and the first
// one for which it has an engine.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "backends/core/convolution/lowering.h"
#include "backends/cuda/cuda_graph.h"
#include "backends/cuda/cuda_tensor_map.h"

namespace convgrad::cuda {

// What a pass needs.
struct PassSpec {
  Pass pass = Pass::kForward;
  ConvProblem problem;  // ordinary
  DataType operands = DataType::kF32;
  DataType result = DataType::kF32;  // what the next step wants
  bool bias = false;
};

// How graphs are made.
struct GraphPlanner {
  const GraphTarget& target;
  int64_t max_workspace_bytes = 0;
};

// A graph, and the tensors that it works on: dense, and padded beforehand where
// no engine takes the pads.
struct Candidate {
  GraphSpec spec;
  std::unique_ptr<ConvGraph> graph;
  Dims data_begin;  // of the data in the padded one, per axis
};

// Tries, in this order: pads as they are, then put into the data; operands and
// result as wanted, then an f32 result, then all in f32, which is exact and
// rounds once; the order of dims in which the engines of the dtype work, then
// the other. Errors: kUnimplemented if all fail, with the first one's reason.
absl::StatusOr<Candidate> ChooseCandidate(const PassSpec& spec,
                                          const GraphPlanner& planner);

// Returns how the candidate's dense tensor for `role` lies; `view` tells the
// part of it that the caller's tensor fills.
MappedTensor DenseMap(const Candidate& candidate, Role role,
                      const MappedTensor& view);

}  // namespace convgrad::cuda
