#include "backends/kernels/copies/strided_copy.h"

#include <cstring>

namespace convgrad {
namespace {

// Uses memcpy, because buffers may be unaligned.
template <typename Element>
void CopyElements(const StridedLoop& loop, const char* source,
                  char* destination) {
  for (int64_t i = 0; i < loop.extent; ++i) {
    Element value;
    std::memcpy(&value, source + i * loop.source_stride * sizeof(Element),
                sizeof(value));
    std::memcpy(destination + i * loop.destination_stride * sizeof(Element),
                &value, sizeof(value));
  }
}

// Copies `count` runs of a size known at compile time; strides in bytes.
template <size_t kBytes>
void CopyRuns(int64_t count, int64_t source_stride, int64_t destination_stride,
              const char* source, char* destination) {
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(destination, source, kBytes);
    source += source_stride;
    destination += destination_stride;
  }
}

// Copies the two innermost loops, of which the inner one is contiguous.
template <typename Element>
void CopyRunsOf(const StridedLoop& outer, int64_t length, const char* source,
                char* destination) {
  const int64_t source_stride = outer.source_stride * sizeof(Element);
  const int64_t destination_stride = outer.destination_stride * sizeof(Element);
  const size_t bytes = length * sizeof(Element);
  switch (bytes) {
    case 16:
      return CopyRuns<16>(outer.extent, source_stride, destination_stride,
                          source, destination);
    case 32:
      return CopyRuns<32>(outer.extent, source_stride, destination_stride,
                          source, destination);
    case 64:
      return CopyRuns<64>(outer.extent, source_stride, destination_stride,
                          source, destination);
    default:
      break;
  }
  for (int64_t i = 0; i < outer.extent; ++i) {
    if (bytes < 64) {
      CopyElements<Element>({length, 1, 1}, source, destination);
    } else {
      std::memcpy(destination, source, bytes);
    }
    source += source_stride;
    destination += destination_stride;
  }
}

template <typename Element>
void CopyAll(absl::Span<const StridedLoop> loops, const char* source,
             char* destination) {
  if (loops.empty())
    return CopyElements<Element>({1, 1, 1}, source, destination);
  const StridedLoop inner = loops.back();
  loops.remove_suffix(1);
  const bool is_run = inner.source_stride == 1 && inner.destination_stride == 1;
  StridedLoop outer = {1, 0, 0};
  if (is_run && !loops.empty()) {
    outer = loops.back();
    loops.remove_suffix(1);
  }
  ForEachStep(loops, 0, 0, [&](int64_t from, int64_t to) {
    const char* first = source + from * sizeof(Element);
    char* target = destination + to * sizeof(Element);
    if (is_run) {
      CopyRunsOf<Element>(outer, inner.extent, first, target);
    } else {
      CopyElements<Element>(inner, first, target);
    }
  });
}

}  // namespace

void MergeLoops(StridedLoops* loops) {
  StridedLoops merged;
  for (const StridedLoop& loop : *loops) {
    if (loop.extent == 1) continue;
    if (!merged.empty()) {
      StridedLoop& outer = merged.back();
      if (outer.source_stride == loop.source_stride * loop.extent &&
          outer.destination_stride == loop.destination_stride * loop.extent) {
        outer = {outer.extent * loop.extent, loop.source_stride,
                 loop.destination_stride};
        continue;
      }
    }
    merged.push_back(loop);
  }
  *loops = std::move(merged);
}

void CopyStrided(int element_bytes, absl::Span<const StridedLoop> loops,
                 const void* source, void* destination) {
  const auto* from = static_cast<const char*>(source);
  auto* to = static_cast<char*>(destination);
  if (element_bytes == 4) return CopyAll<uint32_t>(loops, from, to);
  if (element_bytes == 2) return CopyAll<uint16_t>(loops, from, to);
  CopyAll<uint8_t>(loops, from, to);
}

}  // namespace convgrad
