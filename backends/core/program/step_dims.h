// The operands' dims of one step while shapes are inferred, and what follows
// from them and the attributes axis by axis. Errors' fields begin with ".", so
// that they can follow the step's path.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/core/convolution/conv_problem.h"
#include "backends/core/program/program_shapes.h"

namespace convgrad {

// Returns kInvalidArgument, reason SHAPE_MISMATCH.
absl::Status BadShape(absl::string_view field, const Dims& found,
                      absl::string_view expected);

// Refers to its step and shapes, which have to outlive it.
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
  // The number of spatial axes of the first operand.
  size_t axes() const { return At(0).size() - 2; }

  absl::Status CheckSpatial() const;
  // Checks that the parameter at `position`, if any, has one number a channel.
  absl::Status CheckPerChannel(size_t position) const;
  // Returns the attribute with one number for each spatial axis.
  absl::StatusOr<std::vector<int64_t>> AxisNumbers(
      absl::string_view name) const;

  // Returns a convolution as it is before Resolve.
  absl::StatusOr<std::pair<ConvProblem, ShapeHints>> Problem() const;
  absl::StatusOr<std::vector<PoolAxis>> PoolAxes() const;
  absl::StatusOr<std::vector<UpsampleAxis>> UpsampleAxes() const;

 private:
  absl::Status SetAxes(ConvProblem* problem, ShapeHints* hints) const;
  absl::StatusOr<PoolAxis> MakePoolAxis(PoolAxis axis) const;
  // Returns whether an upsample's elements along `axis` follow from its extents
  // alone.
  bool IgnoresFactor(const UpsampleAxis& axis) const;
  absl::StatusOr<UpsampleAxis> MakeUpsampleAxis(UpsampleAxis axis,
                                                double factor) const;

  const ProgramStep& step_;
  const ProgramShapes& shapes_;
};

}  // namespace convgrad
