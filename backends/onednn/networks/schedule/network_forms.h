// `FormsOf` chooses the form of each value of a network: image or rows.
#pragma once

#include <map>
#include <string>

#include "backends/core/program/program_shapes.h"

namespace convgrad::onednn {

// The memory layout of an activation. Up to rank 2 it is always kRows.
enum class Form {
  // (N, C, spatial...) with the channels in blocks, or last.
  kImage,
  // (N, spatial..., C) with the bytes of the image (N, C, spatial...).
  kTurnedImage,
  // Row-major, with a row for each index of all axes except the last.
  kRows,
};

// Returns the form in which each input and each result is made. A result has
// the form that its step needs; an input has the form that its first user
// needs. An element-wise operator makes an image if one of its operands is an
// image. A permute that moves an image's channels makes a turned image, which
// moves no byte.
std::map<std::string, Form> FormsOf(const convgrad::Program& program,
                                    const ProgramShapes& shapes);

}  // namespace convgrad::onednn
