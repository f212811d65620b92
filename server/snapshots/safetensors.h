// These functions write and read the headers of safetensors files.
//
// A file has the length of its header (8 bytes, little-endian), the header (a
// JSON object with dtype, shape and offsets of each tensor), and the tensors'
// bytes. https://github.com/huggingface/safetensors#format
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace convgrad {

inline constexpr int64_t kSafetensorsLengthBytes = 8;
// The longest header that is read. 16,384 names of 255 characters take 6 MiB.
inline constexpr int64_t kMaxSafetensorsHeaderBytes = int64_t{16} << 20;

// The place of one tensor in a file. Value type.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // E.g. "F32".
  std::vector<int64_t> shape;
  // Offsets from the end of the header.
  int64_t begin = 0;
  int64_t end = 0;

  friend bool operator==(const SafetensorsEntry& a,
                         const SafetensorsEntry& b) = default;
};

// Returns the bytes of one element, nullopt for an unknown dtype.
std::optional<int64_t> SafetensorsElementBytes(absl::string_view dtype);

// Returns the length and the header of a file with these tensors, padded with
// blanks so that the first tensor is aligned to 64 bytes. Requires: the entries
// lie one after the other from 0; names are unique and printable ASCII.
std::string MakeSafetensorsHeader(const std::vector<SafetensorsEntry>& entries);

// Returns the length of the header, from the first 8 bytes of a file of
// `file_bytes`.
// Errors: kInvalidArgument if the header would exceed the file or
// kMaxSafetensorsHeaderBytes.
absl::StatusOr<int64_t> ReadSafetensorsLength(absl::string_view length,
                                              int64_t file_bytes);

// Returns the tensors of a header in the order of their bytes. `data_bytes` is
// the number of bytes behind the header. Ignores __metadata__. Memory is
// proportional to the header.
// Errors: kInvalidArgument naming the field, for anything that isn't such a
// header: repeated or unknown keys, unknown dtypes, shapes that disagree with
// the offsets, and bytes that belong to no tensor or to two.
absl::StatusOr<std::vector<SafetensorsEntry>> ParseSafetensorsHeader(
    absl::string_view header, int64_t data_bytes);

}  // namespace convgrad
