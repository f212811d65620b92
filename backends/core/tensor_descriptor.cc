#include "backends/core/tensor_descriptor.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "backends/core/checked_math.h"
#include "backends/core/fractal_layout.h"

namespace convgrad {
namespace {

// Indexed by Layout.
constexpr absl::string_view kLayoutNames[] = {
    "NCX", "NXC", "OIX", "OXI", "XIO", "NDC1HWC0", "FRACTAL_Z_3D"};

int64_t SpatialIndex(absl::Span<const int64_t> index, int axis) {
  const int skipped = 3 - (static_cast<int>(index.size()) - 2);
  return axis < skipped ? 0 : index[2 + axis - skipped];
}

Dims PackedDims(const TensorDescriptor& d) {
  const int64_t depth = SpatialExtent(d, 0), height = SpatialExtent(d, 1),
                width = SpatialExtent(d, 2);
  if (d.layout == Layout::kNDC1HWC0) {
    return {d.dims[0], depth, CeilDiv(d.dims[1], d.c0), height, width, d.c0};
  }
  const FractalExtents f = FractalExtentsOf(d);
  return {f.super_groups, depth, f.c1,          height,
          width,          f.n1,  kFractalBlock, d.c0};
}

int64_t BlockedOffset(const TensorDescriptor& d,
                      absl::Span<const int64_t> index) {
  const Dims packed = PackedDims(d);
  const int64_t z = SpatialIndex(index, 0), y = SpatialIndex(index, 1),
                x = SpatialIndex(index, 2);
  Dims at;
  if (d.layout == Layout::kNDC1HWC0) {
    at = {index[0], z, index[1] / d.c0, y, x, index[1] % d.c0};
  } else {
    const FractalExtents f = FractalExtentsOf(d);
    const int64_t group = index[0] / f.ocg;
    const int64_t within = group % f.fused_groups;
    const int64_t ci = within * f.icg + index[1];
    const int64_t co = within * f.ocg + index[0] % f.ocg;
    at = {group / f.fused_groups, z,        ci / d.c0, y, x, co / kFractalBlock,
          co % kFractalBlock,     ci % d.c0};
  }
  int64_t offset = 0;
  for (size_t i = 0; i < at.size(); ++i) offset = offset * packed[i] + at[i];
  return offset;
}

// Returns the logical axes from outermost to innermost in memory.
Dims MemoryOrder(Layout layout, int rank) {
  Dims order(rank);
  std::iota(order.begin(), order.end(), 0);
  switch (layout) {
    case Layout::kNXC:
    case Layout::kOXI:
      if (rank > 2)
        std::rotate(order.begin() + 1, order.begin() + 2, order.end());
      break;
    case Layout::kXIO:
      std::rotate(order.begin(), order.begin() + 2, order.end());
      std::swap(order[rank - 2], order[rank - 1]);
      break;
    default:
      break;
  }
  return order;
}

}  // namespace

absl::string_view NameOf(Layout layout) {
  return kLayoutNames[static_cast<size_t>(layout)];
}

std::optional<Layout> ParseLayout(absl::string_view name) {
  for (size_t i = 0; i < std::size(kLayoutNames); ++i) {
    for (const absl::string_view axes : {"X", "W", "HW", "DHW"}) {
      if (absl::StrReplaceAll(kLayoutNames[i], {{"X", axes}}) == name) {
        return static_cast<Layout>(i);
      }
    }
  }
  return std::nullopt;
}

bool IsWeightLayout(Layout layout) {
  return layout == Layout::kOIX || layout == Layout::kOXI ||
         layout == Layout::kXIO || layout == Layout::kFractalZ3D;
}

bool IsRowMajor(Layout layout) {
  return layout != Layout::kNDC1HWC0 && layout != Layout::kFractalZ3D;
}

bool operator==(const TensorDescriptor& a, const TensorDescriptor& b) {
  return a.dtype == b.dtype && a.layout == b.layout && a.dims == b.dims &&
         (IsRowMajor(a.layout) || a.c0 == b.c0) &&
         (a.layout != Layout::kFractalZ3D || a.groups == b.groups);
}

int64_t DefaultC0(DataType dtype) { return dtype == DataType::kF32 ? 8 : 16; }

std::optional<int64_t> ByteSize(const TensorDescriptor& descriptor) {
  std::optional<int64_t> elements = CheckedProduct(descriptor.dims);
  if (!elements) return std::nullopt;
  if (!IsRowMajor(descriptor.layout) && *elements > 0) {
    // Prevents overflow in the block arithmetic below (lcm, rounding up).
    constexpr int64_t kLargestBlockedAxis = int64_t{1} << 48;
    for (int64_t extent : descriptor.dims) {
      if (extent > kLargestBlockedAxis) return std::nullopt;
    }
    elements = CheckedProduct(PackedDims(descriptor));
    if (!elements) return std::nullopt;
  }
  return CheckedMul(*elements, ByteSizeOf(descriptor.dtype));
}

int64_t ElementCount(const TensorDescriptor& descriptor) {
  return *CheckedProduct(descriptor.dims);
}

Dims Strides(const TensorDescriptor& descriptor) {
  const int rank = static_cast<int>(descriptor.dims.size());
  const Dims order = MemoryOrder(descriptor.layout, rank);
  Dims strides(rank);
  int64_t stride = 1;
  for (int i = rank - 1; i >= 0; --i) {
    strides[order[i]] = stride;
    stride *= std::max<int64_t>(descriptor.dims[order[i]], 1);
  }
  return strides;
}

Dims RowMajorStrides(const Dims& dims) {
  return Strides({DataType::kF32, Layout::kNCX, dims});
}

Dims BroadcastStrides(const Dims& from, const Dims& dims) {
  Dims strides(dims.size());
  int64_t stride = 1;
  for (size_t i = 1; i <= from.size(); ++i) {
    const int64_t extent = from[from.size() - i];
    if (extent != 1) strides[dims.size() - i] = stride;
    stride *= extent;
  }
  return strides;
}

int64_t OffsetOf(const TensorDescriptor& descriptor,
                 absl::Span<const int64_t> index) {
  if (!IsRowMajor(descriptor.layout)) return BlockedOffset(descriptor, index);
  const Dims strides = Strides(descriptor);
  int64_t offset = 0;
  for (size_t i = 0; i < index.size(); ++i) offset += index[i] * strides[i];
  return offset;
}

std::string ToString(absl::Span<const int64_t> dims) {
  return absl::StrCat("[", absl::StrJoin(dims, ","), "]");
}

std::string StorageText(const TensorDescriptor& descriptor) {
  std::string text =
      absl::StrCat(NameOf(descriptor.dtype), ":", NameOf(descriptor.layout));
  if (!IsRowMajor(descriptor.layout)) {
    absl::StrAppend(&text, "/", descriptor.c0);
  }
  return text;
}

std::string ToString(const TensorDescriptor& descriptor) {
  return StorageText(descriptor) + ToString(descriptor.dims);
}

}  // namespace convgrad
