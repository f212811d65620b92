// Reads and writes NumPy's .npy files: one dense array, C order, little-endian.
// Format: numpy.lib.format, versions 1.0 to 3.0.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/core/data_type.h"

namespace convgrad {

struct NpyArray {
  DataType dtype = DataType::kF32;
  std::vector<int64_t> shape;
  std::string data;  // packed, row-major
};

// Reads '<f4' as f32, '<f2' as f16, 'V2' as bf16 (NumPy has no bf16; ml_dtypes
// saves it as V2), '|u1' as u8, '<u2' as u16 and '<i8' as i64.
// Errors: kNotFound; kInvalidArgument for anything unsupported, e.g. Fortran
// order, or data whose length doesn't match the shape.
absl::StatusOr<NpyArray> ReadNpy(const std::string& path);

// Writes the dtypes that ReadNpy reads, bf16 as '|V2'. Follows symbolic links.
// Errors: kInternal if the file can't be written.
absl::Status WriteNpy(const std::string& path, const NpyArray& array);

// Do the same in memory; `name` identifies the bytes in errors.
absl::StatusOr<NpyArray> ParseNpy(absl::string_view bytes,
                                  const std::string& name);
std::string SerializeNpy(const NpyArray& array);

}  // namespace convgrad
