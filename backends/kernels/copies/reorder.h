// Copies of tensors into another layout or element type.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/core/physical_layout.h"
#include "backends/core/tensor_descriptor.h"
#include "backends/kernels/copies/tiled_box.h"

namespace convgrad {

// A copy prepared once and run often, in parts that a team of threads may
// share. Immutable and thread-safe.
//
// Equal element types are copied bit for bit, others converted as ConvertRun
// does. Pad lanes of the source and, in FRACTAL_Z_3D, elements off the groups'
// blocks have no influence on the destination, whose own are written as +0.
// Buffers need no alignment and must not overlap.
class Reorder {
 public:
  // Requires: valid descriptors of equal dims, both of activations or both of
  // weights; equal `groups` if both are kFractalZ3D.
  static Reorder Make(const TensorDescriptor& from, const TensorDescriptor& to);

  // As above for layouts that no descriptor names. Requires: equal extents,
  // axis by axis; of two blocks on one axis, the smaller divides the larger.
  static Reorder Make(const PhysicalLayout& from, DataType from_dtype,
                      const PhysicalLayout& to, DataType to_dtype);

  // Returns the number of independent parts, of some 128 KiB each; 0 for an
  // empty tensor. Depends on nothing but the arguments of Make.
  int64_t part_count() const { return part_count_; }

  // Runs the parts [begin, end). Parts write disjoint bytes, together all of
  // the destination, and the same ones however they are split and ordered.
  void Run(const void* source, void* destination, int64_t begin,
           int64_t end) const;

  // Runs all parts.
  void Run(const void* source, void* destination) const {
    Run(source, destination, 0, part_count_);
  }

 private:
  // A destination in equal chunks that begin as zeros: step i of every box's
  // first axis lies in chunk i. Units: elements.
  struct ZeroedChunks {
    int64_t count = 0;
    int64_t size = 0;
    int64_t total = 0;  // the last chunk may be shorter
    int64_t per_part = 1;
  };

  struct PartedBox {
    TiledBox box;
    int64_t tiles_per_part;
    int64_t first_part;
  };

  Reorder() = default;
  static Reorder MakeWeight(const TensorDescriptor& from,
                            const TensorDescriptor& to);
  void AddBoxes(std::vector<Box> boxes, TileOptions options);
  void RunChunks(const void* source, void* destination, int64_t part) const;
  void RunTiles(const void* source, void* destination, int64_t part) const;

  std::vector<PartedBox> boxes_;
  ZeroedChunks chunks_;
  int64_t part_count_ = 0;
  int64_t destination_element_bytes_ = 0;
  bool stream_ = false;
};

}  // namespace convgrad
