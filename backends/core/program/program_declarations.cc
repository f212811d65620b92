#include "backends/core/program/program_declarations.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "backends/core/checked_math.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

// Sessions keep a parameter's optimizer state under its name and a suffix, of
// which #momentum_buffer is the longest. Such names have at most 255 bytes.
constexpr size_t kMaxNameBytes = 239;
constexpr size_t kMaxRank = 5;

}  // namespace

absl::Status CheckProgramName(absl::string_view name, absl::string_view field) {
  if (name.empty() || name.size() > kMaxNameBytes) {
    return OutOfRange(field, absl::StrCat("a name of ", name.size(), " bytes"),
                      absl::StrCat("1 to ", kMaxNameBytes, " bytes"));
  }
  const bool is_plain = std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isgraph(c) &&
           absl::string_view("/\\,()=#").find(c) == absl::string_view::npos;
  });
  if (is_plain && name != "none") return absl::OkStatus();
  return Malformed(field, absl::StrCat("'", absl::CHexEscape(name), "'"),
                   "printable ASCII without spaces and / \\ , ( ) = #, and "
                   "not none");
}

absl::Status CheckParameter(const ProgramParameter& parameter,
                            const std::string& path) {
  const auto bytes = CheckedProduct(parameter.dims);
  if (parameter.dims.size() > kMaxRank) {
    return ShapeMismatch(path + ".dims",
                         absl::StrCat("rank ", parameter.dims.size()),
                         absl::StrCat("rank ", kMaxRank, " at most"));
  }
  for (const int64_t extent : parameter.dims) {
    if (extent >= 1) continue;
    return OutOfRange(path + ".dims", ToString(parameter.dims),
                      "extents of at least 1");
  }
  if (!bytes || !CheckedMul(*bytes, 8)) {
    return InvalidField(Reason::kOverflow, path + ".dims",
                        ToString(parameter.dims), "sizes below 2^63 bytes");
  }
  const bool is_fixed_i64 =
      parameter.dtype == DataType::kI64 && !parameter.trainable;
  if (parameter.dtype == DataType::kF32 || is_fixed_i64) {
    return absl::OkStatus();
  }
  return InvalidField(
      Reason::kDtypeMismatch, path + ".dtype",
      absl::StrCat(NameOf(parameter.dtype), " ", ToString(parameter.dims),
                   parameter.trainable ? "" : " fixed"),
      "f32, or i64 fixed");
}

}  // namespace convgrad
