#include "backends/kernels/copies/scattered_reorder.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "backends/core/checked_math.h"
#include "backends/kernels/copies/reorder.h"
#include "backends/kernels/copies/reorder_box.h"

namespace convgrad {
namespace {

// Slab sizes that fit a core's second-level cache.
constexpr int64_t kSlabBytes = 256 << 10;
constexpr int64_t kLargestSlabBytes = 1 << 20;

// Returns the number of elements from the first to the end of the last one,
// pads included.
int64_t SpanOf(const PhysicalLayout& layout) {
  int64_t last = 0;
  for (const PhysicalAxis& axis : layout.axes) {
    last += OffsetAt(axis, std::max(axis.extent, axis.padded) - 1);
  }
  return last + 1;
}

int64_t CountOf(const PhysicalLayout& layout) {
  int64_t count = 1;
  for (const PhysicalAxis& axis : layout.axes) {
    count *= std::max(axis.extent, axis.padded);
  }
  return count;
}

// Returns whether images are contiguous, without gaps between elements.
bool IsDenseByImage(const PhysicalLayout& layout) {
  PhysicalLayout image = layout;
  image.axes[0].extent = 1;
  const int64_t size = SpanOf(image);
  return layout.axes[0].block == 0 && CountOf(image) == size &&
         (layout.axes[0].extent == 1 || layout.axes[0].stride == size);
}

// Returns the axis of an image along which the source is cut; 0 if it isn't.
int CutAxisOf(const PhysicalLayout& from) {
  int outermost = 0;
  for (int i = 1; i < static_cast<int>(from.axes.size()); ++i) {
    const PhysicalAxis& axis = from.axes[i];
    if (axis.extent == 1) continue;
    const auto reach = [](const PhysicalAxis& a) {
      return a.block == 0 ? a.stride : a.block_stride;
    };
    if (outermost == 0 || reach(axis) > reach(from.axes[outermost])) {
      outermost = i;
    }
  }
  return outermost;
}

}  // namespace

// Cuts the source into slabs. Slab i is the range [r * step, r * step + step)
// of the cut axis of image n, where i = n * per_image + r. An image's last slab
// may be shorter.
struct ScatteredReorder::Slabs {
  Slabs(PhysicalLayout source, DataType source_dtype,
        PhysicalLayout destination, DataType destination_dtype)
      : from(std::move(source)),
        to(std::move(destination)),
        from_dtype(source_dtype),
        to_dtype(destination_dtype) {}

  // Returns false if no slab is small enough.
  bool Cut();
  Reorder MakeReorder(int64_t begin, int64_t extent) const;
  bool IsLast(int64_t slab) const { return slab % per_image == per_image - 1; }
  int64_t count() const { return from.axes[0].extent * per_image; }
  int64_t SourceOffset(int64_t slab) const {
    const int64_t image_bytes = (per_image - 1) * step_bytes + last_bytes;
    return slab / per_image * image_bytes + slab % per_image * step_bytes;
  }
  int64_t DestinationOffset(int64_t slab) const {
    return (slab / per_image * to.axes[0].stride +
            OffsetAt(to.axes[cut], slab % per_image * step)) *
           ByteSizeOf(to_dtype);
  }

  const PhysicalLayout from, to;
  const DataType from_dtype, to_dtype;
  int cut = 0;
  int64_t step = 1, per_image = 1;
  int64_t step_bytes = 0, last_bytes = 0;
  std::optional<Reorder> whole, last;
};

Reorder ScatteredReorder::Slabs::MakeReorder(int64_t begin,
                                             int64_t extent) const {
  PhysicalLayout source = from, destination = to;
  for (PhysicalLayout* layout : {&source, &destination}) {
    layout->axes[0].extent = 1;
    if (cut == 0) continue;
    PhysicalAxis& axis = layout->axes[cut];
    if (begin + extent < axis.extent) axis.padded = 0;
    if (axis.padded > 0) axis.padded -= begin;
    axis.extent = extent;
  }
  return Reorder::Make(source, from_dtype, destination, to_dtype);
}

bool ScatteredReorder::Slabs::Cut() {
  const int64_t image_bytes =
      SpanOf(from) / from.axes[0].extent * ByteSizeOf(from_dtype);
  cut = image_bytes > kSlabBytes ? CutAxisOf(from) : 0;
  const int64_t extent = cut == 0 ? 1 : from.axes[cut].extent;
  const int64_t padded = cut == 0 ? 1 : std::max(extent, from.axes[cut].padded);
  const int64_t row_bytes = image_bytes / padded;
  if (cut > 0) {
    const int64_t grain =
        std::max<int64_t>({1, from.axes[cut].block, to.axes[cut].block});
    step = std::max<int64_t>(kSlabBytes / row_bytes / grain, 1) * grain;
  }
  per_image = CeilDiv(extent, step);
  step_bytes = step * row_bytes;
  const int64_t last_begin = (per_image - 1) * step;
  last_bytes = (padded - last_begin) * row_bytes;
  if (std::max(last_bytes, per_image > 1 ? step_bytes : 0) >
      kLargestSlabBytes) {
    return false;
  }
  last = MakeReorder(last_begin, extent - last_begin);
  if (per_image > 1) whole = MakeReorder(0, step);
  return true;
}

std::optional<ScatteredReorder> ScatteredReorder::Make(
    const PhysicalLayout& from, DataType from_dtype, const PhysicalLayout& to,
    DataType to_dtype) {
  for (const PhysicalAxis& axis : from.axes) {
    if (axis.extent == 0 || axis.first > 0) return std::nullopt;
  }
  if (!IsDenseByImage(from) || !IsDenseByImage(to)) return std::nullopt;
  auto slabs = std::make_shared<Slabs>(from, from_dtype, to, to_dtype);
  if (!slabs->Cut()) return std::nullopt;
  return ScatteredReorder(std::move(slabs));
}

int64_t ScatteredReorder::destination_bytes() const {
  return SpanOf(slabs_->to) * ByteSizeOf(slabs_->to_dtype);
}

int64_t ScatteredReorder::part_count() const { return slabs_->count(); }

int64_t ScatteredReorder::SourceOffset(int64_t part) const {
  return slabs_->SourceOffset(part);
}

void ScatteredReorder::Run(ReadBytes read, void* destination, int64_t begin,
                           int64_t end) const {
  // An array instead of a vector, which would zero the bytes first.
  const std::unique_ptr<std::byte[]> slab(
      new std::byte[std::max(slabs_->step_bytes, slabs_->last_bytes)]);
  for (int64_t part = begin; part < end; ++part) {
    const int64_t offset = slabs_->SourceOffset(part);
    read(offset,
         absl::MakeSpan(slab.get(), slabs_->SourceOffset(part + 1) - offset));
    const Reorder& reorder =
        slabs_->IsLast(part) ? *slabs_->last : *slabs_->whole;
    reorder.Run(slab.get(), static_cast<std::byte*>(destination) +
                                slabs_->DestinationOffset(part));
  }
}

}  // namespace convgrad
