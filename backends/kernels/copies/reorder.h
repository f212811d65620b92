// `Reorder` copies tensors to another layout or element type.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/core/physical_layout.h"
#include "backends/core/tensor_descriptor.h"
#include "backends/kernels/copies/tiled_box.h"

namespace convgrad {

// A copy, prepared once and run repeatedly in parts, which several threads may
// share. Immutable; thread-safe.
//
// Equal element types are copied bit for bit; others are converted as in
// ConvertRun. Pad lanes of the source, and FRACTAL_Z_3D elements outside the
// groups' blocks, don't affect the destination. The destination's pads are
// written as +0. Buffers need no alignment and must not overlap.
class Reorder {
 public:
  // Requires: valid descriptors of equal dims, both of activations or both of
  // weights; equal `groups` if both are kFractalZ3D.
  static Reorder Make(const TensorDescriptor& from, const TensorDescriptor& to);

  // Does the same for layouts without a descriptor. Requires: equal extents,
  // axis by axis. If both sides have blocks on an axis, the smaller divides the
  // larger. U8 is only converted to floating types.
  static Reorder Make(const PhysicalLayout& from, DataType from_dtype,
                      const PhysicalLayout& to, DataType to_dtype);

  // Returns the number of independent parts, about 128 KiB each; 0 for an empty
  // tensor, and 1 for weights whose groups share blocks. Depends only on the
  // arguments of Make.
  int64_t part_count() const { return part_count_; }

  // Runs the parts [begin, end). Parts write disjoint bytes and together all of
  // the destination. The bytes don't depend on how the parts are split and
  // ordered.
  void Run(const void* source, void* destination, int64_t begin,
           int64_t end) const;

  // Runs all parts.
  void Run(const void* source, void* destination) const {
    Run(source, destination, 0, part_count_);
  }

 private:
  struct PartedBox {
    TiledBox box;
    int64_t tiles_per_part;
    int64_t first_part;
  };

  Reorder() = default;
  static Reorder MakeWeight(const TensorDescriptor& from,
                            const TensorDescriptor& to);
  void AddBoxes(std::vector<Box> boxes, TileOptions options);
  void RunTiles(const void* source, void* destination, int64_t part) const;

  std::vector<PartedBox> boxes_;
  // Bytes of the destination that are zeroed first. 0 if the boxes write every
  // byte.
  int64_t zeroed_bytes_ = 0;
  int64_t part_count_ = 0;
};

}  // namespace convgrad
