#include "backends/core/data_type.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

namespace convgrad {
namespace {

struct Row {
  absl::string_view name;
  int64_t bytes;
  double roundoff;  // 0: an integer
};
// Indexed by DataType.
constexpr Row kRows[] = {{"f32", 4, 0x1p-24}, {"bf16", 2, 0x1p-8},
                         {"f16", 2, 0x1p-11}, {"u8", 1, 0},
                         {"i64", 8, 0},       {"u16", 2, 0}};

const Row& RowOf(DataType dtype) { return kRows[static_cast<size_t>(dtype)]; }

struct BinaryFormat {
  int mantissa_bits;  // stored bits
  int min_exponent;   // of the smallest normal number
  int max_exponent;
};

constexpr BinaryFormat kBFloat16{7, -126, 127};
constexpr BinaryFormat kHalf{10, -14, 15};

uint16_t PackRounded(const BinaryFormat& format, double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const int mantissa_bits = format.mantissa_bits;
  const uint16_t infinity =
      static_cast<uint16_t>(((1 << (15 - mantissa_bits)) - 1) << mantissa_bits);
  if (std::isnan(value)) return sign | infinity | (1 << (mantissa_bits - 1));
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  if (std::isinf(magnitude)) return sign | infinity;
  int exponent = std::max(std::ilogb(magnitude), format.min_exponent);
  // Units of the last place. nearbyint rounds to nearest even by default.
  double units =
      std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent));
  if (units >= std::ldexp(1.0, mantissa_bits + 1)) {
    units /= 2;
    ++exponent;
  }
  if (exponent > format.max_exponent) return sign | infinity;
  const auto integer = static_cast<uint16_t>(units);
  // A subnormal has no hidden bit. The hidden bit of other numbers adds 1 to
  // the exponent field.
  const int field = exponent - format.min_exponent;
  return sign | static_cast<uint16_t>((field << mantissa_bits) + integer);
}

double UnpackHalf(uint16_t bits) {
  const double sign = (bits & 0x8000) ? -1.0 : 1.0;
  const int field = (bits >> 10) & 0x1f;
  const int mantissa = bits & 0x3ff;
  if (field == 0x1f) {
    return mantissa ? std::copysign(std::nan(""), sign) : sign * INFINITY;
  }
  if (field == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(mantissa + 1024, field - 25);
}

// Returns the nearest integer of the type, ties to even; saturates.
template <typename Integer>
Integer Saturated(double value) {
  if (std::isnan(value)) return 0;
  const double rounded = std::nearbyint(value);
  using Limits = std::numeric_limits<Integer>;
  // The largest I64 isn't a double, but the number above it is.
  if (rounded >= static_cast<double>(Limits::max())) return Limits::max();
  if (rounded <= static_cast<double>(Limits::min())) return Limits::min();
  return static_cast<Integer>(rounded);
}

template <typename T>
void Store(T value, void* element) {
  std::memcpy(element, &value, sizeof(value));
}

}  // namespace

bool IsFloating(DataType dtype) { return UnitRoundoff(dtype) > 0; }

int64_t ByteSizeOf(DataType dtype) { return RowOf(dtype).bytes; }

absl::string_view NameOf(DataType dtype) { return RowOf(dtype).name; }

std::optional<DataType> ParseDataType(absl::string_view name) {
  for (size_t i = 0; i < std::size(kRows); ++i) {
    if (kRows[i].name == name) return static_cast<DataType>(i);
  }
  return std::nullopt;
}

double UnitRoundoff(DataType dtype) { return RowOf(dtype).roundoff; }

double LoadAsDouble(DataType dtype, const void* element) {
  if (dtype == DataType::kF32) {
    float value;
    std::memcpy(&value, element, sizeof(value));
    return value;
  }
  if (dtype == DataType::kU8) return *static_cast<const uint8_t*>(element);
  if (dtype == DataType::kI64) {
    int64_t value;
    std::memcpy(&value, element, sizeof(value));
    return static_cast<double>(value);
  }
  uint16_t bits;
  std::memcpy(&bits, element, sizeof(bits));
  if (dtype == DataType::kU16) return bits;
  if (dtype == DataType::kF16) return UnpackHalf(bits);
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

void StoreRounded(DataType dtype, double value, void* element) {
  switch (dtype) {
    case DataType::kF32:
      return Store(static_cast<float>(value), element);
    case DataType::kBF16:
      return Store(PackRounded(kBFloat16, value), element);
    case DataType::kF16:
      return Store(PackRounded(kHalf, value), element);
    case DataType::kU8:
      return Store(Saturated<uint8_t>(value), element);
    case DataType::kI64:
      return Store(Saturated<int64_t>(value), element);
    case DataType::kU16:
      return Store(Saturated<uint16_t>(value), element);
  }
}

}  // namespace convgrad
