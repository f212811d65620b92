#include "backends/kernels/tokens/broadcast_sums.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "backends/kernels/operators/elements.h"

namespace convgrad {
namespace {

int64_t CountOf(const Dims& dims) {
  int64_t count = 1;
  for (const int64_t extent : dims) count *= extent;
  return count;
}

// Adds a row of `from` to the sums of a row of `to`, or to its single sum.
void AddRow(DataType dtype, const std::byte* from, int64_t first,
            int64_t length, std::vector<double>* sums) {
  const bool is_summed = sums->size() == 1;
  for (int64_t i = 0; i < length; ++i) {
    (*sums)[is_summed ? 0 : i] += LoadElement(dtype, from, first + i);
  }
}

}  // namespace

void SumBroadcast(const Dims& dims, const void* from, const Dims& to_dims,
                  void* to, DataType dtype, RunParts run) {
  const int64_t length = dims.back(), columns = to_dims.back();
  // The axes before the last one: those that `to` has, and those summed over.
  const Dims kept(to_dims.begin(), to_dims.end() - 1);
  Dims summed(dims.begin(), dims.end() - 1);
  Dims strides(summed.size());
  int64_t stride = length;
  for (size_t i = summed.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= summed[i];
    if (kept[i] != 1) summed[i] = 1;
  }
  const auto offset_of = [&](const Dims& extents, int64_t index) {
    int64_t offset = 0;
    for (size_t i = extents.size(); i-- > 0;) {
      offset += index % extents[i] * strides[i];
      index /= extents[i];
    }
    return offset;
  };
  const int64_t terms = CountOf(summed);
  run(CountOf(kept), [&](int64_t row) {
    std::vector<double> sums(columns);
    for (int64_t term = 0; term < terms; ++term) {
      AddRow(dtype, static_cast<const std::byte*>(from),
             offset_of(kept, row) + offset_of(summed, term), length, &sums);
    }
    for (int64_t i = 0; i < columns; ++i) {
      StoreElement(dtype, static_cast<float>(sums[i]),
                   static_cast<std::byte*>(to), row * columns + i);
    }
  });
}

}  // namespace convgrad
