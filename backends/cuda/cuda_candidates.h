// `ChooseCandidate` chooses how cuDNN computes one pass: the first alternative,
// best first, for which it has an engine.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backends/core/convolution/lowering.h"
#include "backends/cuda/cuda_graph.h"
#include "backends/cuda/cuda_tensor_map.h"

namespace convgrad::cuda {

// Properties of a pass.
struct PassSpec {
  Pass pass = Pass::kForward;
  ConvProblem problem;  // ordinary
  DataType operands = DataType::kF32;
  DataType result = DataType::kF32;  // dtype that the next step reads
  bool bias = false;
};

// A graph and the tensors on which it works. They are dense, and contain the
// padding if no engine supports the pads.
struct Candidate {
  GraphSpec spec;
  std::unique_ptr<ConvGraph> graph;
  // Begin of the data in the padded tensor, per axis.
  Dims data_begin;
};

// Tries, in this order: pads as parameters if both ends of each axis have the
// same, then in the data; operands and result as requested if both have 16
// bits, then everything in f32, which is exact and rounds once; the layout
// preferred for the dtype, then the other.
// Errors: kUnimplemented with the first reason if all fail.
absl::StatusOr<Candidate> ChooseCandidate(const PassSpec& spec,
                                          const GraphTarget& target);

// Returns the layout of the candidate's dense tensor for `role`. `view` says
// which part of it the caller's tensor fills.
MappedTensor DenseMap(const Candidate& candidate, Role role,
                      const MappedTensor& view);

}  // namespace convgrad::cuda
