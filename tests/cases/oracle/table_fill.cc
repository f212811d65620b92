#include "tests/cases/oracle/table_fill.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "backends/core/logical_tensor.h"
#include "backends/core/status.h"
#include "tests/conformance/tensor_fill.h"

namespace convgrad::testing_support {
namespace {

// splitmix64's finaliser (Vigna, public domain).
uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

constexpr DataType kDtypes[] = {DataType::kF32, DataType::kBF16,
                                DataType::kF16};

std::vector<double> IntegerValues(int amplitude) {
  std::vector<double> values(kTableSize);
  for (int i = 0; i < kTableSize; ++i) {
    const int value = i % (2 * amplitude) - amplitude;
    values[i] = value < 0 ? value : value + 1;
  }
  return values;
}

// Returns numbers whose second half mirrors the first, so that the mean is 0.
std::vector<double> RealValues(DataType dtype) {
  std::vector<double> values = RealFill(kTableSize, /*seed=*/11, dtype);
  for (int i = 0; i < kTableSize / 2; ++i) {
    values[kTableSize / 2 + i] = -values[i];
  }
  return values;
}

int64_t ProductOf(absl::Span<const int64_t> extents) {
  int64_t product = 1;
  for (int64_t extent : extents) product *= extent;
  return product;
}

template <typename Element>
void PackRowMajor(const FillIndices& indices,
                  const std::vector<Element>& encoded, Element* to) {
  for (size_t i = 0; i < indices.size(); ++i) to[i] = encoded[indices[i]];
}

// Reorders (A, B, spatial) to (A, spatial, B), in tiles that fit the cache.
template <typename Element>
void PackChannelsLast(const Dims& dims, const FillIndices& indices,
                      const std::vector<Element>& encoded, Element* to) {
  constexpr int64_t kTile = 32;
  const int64_t channels = dims[1];
  const int64_t spatial = ProductOf(absl::MakeConstSpan(dims).subspan(2));
  for (int64_t a = 0; a < dims[0]; ++a) {
    const int64_t base = a * channels * spatial;
    for (int64_t c0 = 0; c0 < channels; c0 += kTile) {
      const int64_t c1 = std::min(channels, c0 + kTile);
      for (int64_t s0 = 0; s0 < spatial; s0 += kTile) {
        const int64_t s1 = std::min(spatial, s0 + kTile);
        for (int64_t s = s0; s < s1; ++s) {
          for (int64_t c = c0; c < c1; ++c) {
            to[base + s * channels + c] =
                encoded[indices[base + c * spatial + s]];
          }
        }
      }
    }
  }
}

template <typename Element>
void Pack(const TensorDescriptor& descriptor, const FillIndices& indices,
          const ValueTable& table, std::byte* data) {
  std::vector<Element> encoded(kTableSize);
  for (int i = 0; i < kTableSize; ++i) {
    encoded[i] = static_cast<Element>(table.bits(i));
  }
  auto* to = reinterpret_cast<Element*>(data);
  switch (descriptor.layout) {
    case Layout::kNCX:
    case Layout::kOIX:
      return PackRowMajor(indices, encoded, to);
    case Layout::kNXC:
    case Layout::kOXI:
      return PackChannelsLast(descriptor.dims, indices, encoded, to);
    default:
      break;
  }
  const std::vector<int64_t> offsets = LogicalOffsets(descriptor);
  for (size_t i = 0; i < offsets.size(); ++i) {
    to[offsets[i]] = encoded[indices[i]];
  }
}

}  // namespace

ValueTable::ValueTable(DataType dtype, const std::vector<double>& values)
    : dtype_(dtype), bits_{} {
  for (int i = 0; i < kTableSize; ++i) {
    values_[i] = static_cast<float>(values[i]);
    StoreRounded(dtype, values[i], &bits_[i]);
  }
}

const ValueTable& ValueTable::Integers(DataType dtype, int amplitude) {
  using Key = std::pair<DataType, int>;
  static const auto& tables = *[] {
    auto* made = new std::map<Key, ValueTable>;
    for (DataType each : kDtypes) {
      for (int a : {1, 2, 4}) {
        made->try_emplace(Key(each, a), each, IntegerValues(a));
      }
    }
    return made;
  }();
  return tables.at(Key(dtype, amplitude));
}

const ValueTable& ValueTable::Reals(DataType dtype) {
  static const auto& tables = *[] {
    auto* made = new std::map<DataType, ValueTable>;
    for (DataType each : kDtypes)
      made->try_emplace(each, each, RealValues(each));
    return made;
  }();
  return tables.at(dtype);
}

FillIndices RandomIndices(int64_t count, uint64_t seed) {
  constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;
  FillIndices indices(count);
  // Mixes the seed, because streams that start one step apart would be shifts
  // of one stream.
  uint64_t state = Mix(seed + 1);
  for (int64_t i = 0; i < count; ++i) {
    state += kStep;
    indices[i] = static_cast<uint16_t>((Mix(state) >> 32) % kTableSize);
  }
  return indices;
}

std::vector<double> ValuesOf(const FillIndices& indices,
                             const ValueTable& table) {
  std::vector<double> values(indices.size());
  for (size_t i = 0; i < indices.size(); ++i) {
    values[i] = table.values()[indices[i]];
  }
  return values;
}

absl::StatusOr<AlignedBuffer> PackFilled(const TensorDescriptor& descriptor,
                                         const FillIndices& indices,
                                         const ValueTable& table) {
  ASSIGN_OR_RETURN(AlignedBuffer buffer,
                   AlignedBuffer::Allocate(*ByteSize(descriptor)));
  if (buffer.size() == 0) return buffer;
  if (!IsRowMajor(descriptor.layout)) {
    std::memset(buffer.data(), 0xff, buffer.size());
  }
  if (ByteSizeOf(descriptor.dtype) == 4) {
    Pack<uint32_t>(descriptor, indices, table, buffer.data());
  } else {
    Pack<uint16_t>(descriptor, indices, table, buffer.data());
  }
  return buffer;
}

}  // namespace convgrad::testing_support
