// `MakeSafetensorsHeader` writes the header of a safetensors file.
//
// A file has the length of its header (8 bytes, little-endian), the header (a
// JSON object with dtype, shape and offsets of each tensor), and the tensors'
// bytes. https://github.com/huggingface/safetensors#format
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "server/snapshots/image_items.h"

namespace convgrad {

// Returns the length and the header of a file that has these items one after
// the other. `part` has their indices. The header is padded with blanks, so
// that the first item is aligned to 64 bytes. Requires: names are unique and
// printable ASCII. Thread-safe.
std::string MakeSafetensorsHeader(const std::vector<ImageItem>& items,
                                  const std::vector<size_t>& part);

}  // namespace convgrad
