// The form of each value of a network: as an image or as rows.
#pragma once

#include <map>
#include <string>

#include "backends/core/program/program_shapes.h"

namespace convgrad::onednn {

// How an activation lies. Up to rank 2 it is always rows.
enum class Form {
  // (N, C, spatial...) with the channels in blocks, or last.
  kImage,
  // (N, spatial..., C) with the bytes of the image (N, C, spatial...).
  kTurnedImage,
  // Row-major: a row for each index of all axes but the last one.
  kRows,
};

// Returns the form that each input and each result of a step is made in:
// what the step needs itself, and of an input what its first user needs. An
// operator on elements has an image if one of its operands is an image. A
// permute that moves the channels of an image turns it, which moves no byte.
std::map<std::string, Form> FormsOf(const convgrad::Program& program,
                                    const ProgramShapes& shapes);

}  // namespace convgrad::onednn
