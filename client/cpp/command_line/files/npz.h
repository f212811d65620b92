// Reads and writes NumPy's .npz files: zip archives with each array as
// NAME.npy.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/command_line/files/npy.h"

namespace convgrad {

// Returns whether `path` ends in ".npz".
bool IsNpz(absl::string_view path);

// Returns the arrays' names as numpy.load reports them, without ".npy".
// Errors: kNotFound; kInvalidArgument for a file that is no archive.
absl::StatusOr<std::vector<std::string>> NamesInNpz(const std::string& path);

// Returns the array with this name.
// Errors: as NamesInNpz and ParseNpy; kNotFound naming the array.
absl::StatusOr<NpyArray> ReadNpz(const std::string& path,
                                 const std::string& name);

// Writes the arrays uncompressed, as numpy.savez does. Replaces the file at
// `path`; keeps the old file if writing fails.
// Errors: kInternal if the file can't be written.
absl::Status WriteNpz(
    const std::string& path,
    const std::vector<std::pair<std::string, NpyArray>>& arrays);

}  // namespace convgrad
