// `StepDims` gives the functions of an OperatorSpec the dims of a step's
// operands and result. Fields of errors begin with ".", so that they can follow
// the step's path.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/core/program/operators/program_step.h"
#include "backends/core/tensor_descriptor.h"

namespace convgrad {

// Thread-compatible value.
struct ProgramShapes {
  // Logical dims of every value: inputs, parameters and results of steps.
  absl::flat_hash_map<std::string, Dims> dims;
  // Names of inputs that have indices.
  absl::flat_hash_set<std::string> indices;
  // For each step, twice the multiply-adds of the forward, padded windows
  // included; an element-wise operator counts one per element. 0: the step
  // computes nothing.
  std::vector<int64_t> flops;
};

// Returns kInvalidArgument, reason SHAPE_MISMATCH.
absl::Status BadShape(absl::string_view field, const Dims& found,
                      absl::string_view expected);

// Refers to its step and shapes, which must outlive it.
class StepDims {
 public:
  StepDims(const ProgramStep& step, const ProgramShapes& shapes)
      : step_(step), shapes_(shapes) {}

  const ProgramStep& step() const { return step_; }
  bool Has(size_t position) const {
    return !OperandAt(step_, position).empty();
  }
  // Requires: Has(position).
  const Dims& At(size_t position) const {
    return shapes_.dims.at(OperandAt(step_, position));
  }
  bool IsIndex(size_t position) const {
    return shapes_.indices.contains(OperandAt(step_, position));
  }
  // Requires: the result's dims are inferred.
  const Dims& result() const { return shapes_.dims.at(step_.result); }
  // Returns the number of spatial axes of the first operand.
  size_t axes() const { return At(0).size() - 2; }

  absl::Status CheckSpatial() const;
  // Returns the first operand's axis that the attribute names. A negative
  // number counts from the last axis.
  absl::StatusOr<size_t> Axis(absl::string_view name) const;
  // Checks that the parameter at `position`, if any, has one number per
  // channel.
  absl::Status CheckPerChannel(size_t position) const;
  // Checks that the operand at `position` can be broadcast to `dims`: each of
  // its extents is equal or 1.
  absl::Status CheckBroadcast(size_t position, const Dims& dims) const;
  // Returns the field of errors about the operand at `position`: ".weight".
  std::string FieldOf(size_t position) const;
  // Returns the attribute with one number for each spatial axis.
  absl::StatusOr<std::vector<int64_t>> AxisNumbers(
      absl::string_view name) const;

 private:
  const ProgramStep& step_;
  const ProgramShapes& shapes_;
};

}  // namespace convgrad
