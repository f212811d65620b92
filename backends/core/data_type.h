// The element types of the contract and their scalar conversions.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace convgrad {

enum class DataType { kF32, kBF16, kF16 };

// Returns the bytes of one element: 4, 2 or 2.
int64_t ByteSizeOf(DataType dtype);

// Returns "f32", "bf16" or "f16".
absl::string_view NameOf(DataType dtype);
std::optional<DataType> ParseDataType(absl::string_view name);

// Unit roundoff: 2^-24 (f32), 2^-8 (bf16), 2^-11 (f16).
double UnitRoundoff(DataType dtype);

// Scalar conversions on the stored bits. Narrowing rounds to nearest even,
// once, straight from double; overflow gives Inf, NaN stays (quiet) NaN,
// subnormals are kept.
double LoadAsDouble(DataType dtype, const void* element);
void StoreRounded(DataType dtype, double value, void* element);

}  // namespace convgrad
