// `TensorDescriptor` describes a tensor in memory: element type, layout and
// logical dims. The logical dims don't depend on the layout (proto/layouts.md).
// Activations are (N, C, spatial...). Weights are (O, C/groups, kernel...), or
// (C, O/groups, kernel...) for a transposed convolution.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "backends/core/data_type.h"

namespace convgrad {

using Dims = absl::InlinedVector<int64_t, 5>;

enum class Layout {
  kNCX,         // activations, row-major N, C, spatial
  kNXC,         // activations, row-major N, spatial, C
  kOIX,         // weights, row-major first channel axis, second, kernel
  kOXI,         // weights, row-major first channel axis, kernel, second
  kXIO,         // weights, row-major kernel, second channel axis, first
  kNDC1HWC0,    // activations, channels in blocks of c0
  kFractalZ3D,  // weights, blocks of 16 x c0
};

// Returns the contract's name: "NCX", ..., "FRACTAL_Z_3D".
absl::string_view NameOf(Layout layout);
// Parses the contract's name, or one that spells the axes, e.g. "NHWC" as NXC.
std::optional<Layout> ParseLayout(absl::string_view name);
// Returns true for OIX, OXI, XIO and FRACTAL_Z_3D.
bool IsWeightLayout(Layout layout);

// Returns true for NCX, NXC, OIX, OXI and XIO, whose element order Strides
// gives.
bool IsRowMajor(Layout layout);

// Value type.
struct TensorDescriptor {
  DataType dtype = DataType::kF32;
  Layout layout = Layout::kNCX;
  Dims dims;
  // Channel block of NDC1HWC0 and FRACTAL_Z_3D; ignored by the others.
  int64_t c0 = 0;
  // Convolution groups; only FRACTAL_Z_3D's packing depends on it.
  int64_t groups = 1;

  // Returns whether both describe the same bytes: compares c0 and groups only
  // if the layout uses them.
  friend bool operator==(const TensorDescriptor& a, const TensorDescriptor& b);
};

// Returns the channel block for requests that name none: 16 for 16-bit types, 8
// for f32.
int64_t DefaultC0(DataType dtype);

// Returns the packed bytes, pad lanes included; nullopt beyond 63 bits.
std::optional<int64_t> ByteSize(const TensorDescriptor& descriptor);

// Returns the number of logical elements. Requires: no overflow.
int64_t ElementCount(const TensorDescriptor& descriptor);

// Returns the distance in elements between neighbours along each logical axis.
// Requires: IsRowMajor(descriptor.layout).
Dims Strides(const TensorDescriptor& descriptor);

// Returns the same of a row-major tensor of dims `dims`.
Dims RowMajorStrides(const Dims& dims);

// Returns for each axis of `dims` the stride in a row-major tensor of dims
// `from`, whose last axis is aligned with the last of `dims`. The stride of an
// axis that is broadcast, or that `from` lacks, is 0.
Dims BroadcastStrides(const Dims& from, const Dims& dims);

// Returns the offset of the element at logical `index`, in elements from the
// start, for any layout. Requires: index inside dims, byte size representable.
int64_t OffsetOf(const TensorDescriptor& descriptor,
                 absl::Span<const int64_t> index);

// Returns e.g. "bf16:NXC", or "f32:NDC1HWC0/8" if the layout uses c0.
std::string StorageText(const TensorDescriptor& descriptor);

// Returns e.g. "bf16:NXC[2,64,56,56]": StorageText and the dims.
std::string ToString(const TensorDescriptor& descriptor);

// Returns "[2,64,56,56]".
std::string ToString(absl::Span<const int64_t> dims);

}  // namespace convgrad
