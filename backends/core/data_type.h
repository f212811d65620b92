// `DataType` lists the contract's element types; functions convert single
// elements.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace convgrad {

// Convolutions take the floating-point types. Sessions can also keep the
// others, and programs take them as inputs: images as U8 or U16, class indices
// as I64.
enum class DataType { kF32, kBF16, kF16, kU8, kI64, kU16 };

// Returns whether `dtype` is f32, bf16 or f16.
bool IsFloating(DataType dtype);

// Returns the bytes of one element: 4, 2, 2, 1, 8 or 2.
int64_t ByteSizeOf(DataType dtype);

// Returns "f32", "bf16", "f16", "u8", "i64" or "u16".
absl::string_view NameOf(DataType dtype);
std::optional<DataType> ParseDataType(absl::string_view name);

// Returns the unit roundoff: 2^-24 (f32), 2^-8 (bf16), 2^-11 (f16); 0 for
// integers.
double UnitRoundoff(DataType dtype);

// Convert one element. Narrowing rounds once, from double to nearest even.
// Overflow gives Inf, NaN stays (quiet) NaN, subnormals are kept. Integers
// saturate, and NaN becomes 0.
double LoadAsDouble(DataType dtype, const void* element);
void StoreRounded(DataType dtype, double value, void* element);

}  // namespace convgrad
