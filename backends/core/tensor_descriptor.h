// How a tensor lies in memory: element type, layout and logical dims. The
// logical dims never change with the layout (proto/layouts.md):
// activations are (N, C, spatial...), weights are (O, C/groups, kernel...), or
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
// Likewise; also reads names that spell their axes, "NHWC" as NXC.
std::optional<Layout> ParseLayout(absl::string_view name);
bool IsWeightLayout(Layout layout);

// True for NCX, NXC, OIX, OXI and XIO, whose element order is given by Strides.
bool IsRowMajor(Layout layout);

struct TensorDescriptor {
  DataType dtype = DataType::kF32;
  Layout layout = Layout::kNCX;
  Dims dims;
  // Channel block of NDC1HWC0 and FRACTAL_Z_3D; ignored by the others.
  int64_t c0 = 0;
  // Convolution groups; only FRACTAL_Z_3D's packing depends on it.
  int64_t groups = 1;

  // Whether both say the same of every byte: a c0 or groups that the layout
  // ignores doesn't count.
  friend bool operator==(const TensorDescriptor& a, const TensorDescriptor& b);
};

// Returns the channel block used where a request names none: 16 for 16-bit
// types, 8 for f32.
int64_t DefaultC0(DataType dtype);

// Returns the packed bytes, pad lanes included; nullopt beyond 63 bits.
std::optional<int64_t> ByteSize(const TensorDescriptor& descriptor);

// Returns the number of logical elements. Requires: no overflow.
int64_t ElementCount(const TensorDescriptor& descriptor);

// Returns the distance in elements between neighbours along each logical axis.
// Requires: IsRowMajor(descriptor.layout).
Dims Strides(const TensorDescriptor& descriptor);

// Returns where the element at logical `index` lies, in elements from the
// start, for any layout. Requires: index inside dims, byte size representable.
int64_t OffsetOf(const TensorDescriptor& descriptor,
                 absl::Span<const int64_t> index);

// Returns e.g. "bf16:NXC[2,64,56,56]", c0 named where it counts.
std::string ToString(const TensorDescriptor& descriptor);

// Returns "[2,64,56,56]".
std::string ToString(absl::Span<const int64_t> dims);

}  // namespace convgrad
