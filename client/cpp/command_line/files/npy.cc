#include "client/cpp/command_line/files/npy.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "backends/core/checked_math.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

constexpr absl::string_view kMagic("\x93NUMPY", 6);
// The format aligns the data to this many bytes.
constexpr size_t kDataAlignment = 64;

// NumPy's names of the dtypes. SerializeNpy writes the first one of a dtype.
constexpr std::pair<absl::string_view, DataType> kDescrs[] = {
    {"<f4", DataType::kF32},  {"<f2", DataType::kF16}, {"|V2", DataType::kBF16},
    {"<V2", DataType::kBF16}, {"|u1", DataType::kU8},  {"<i8", DataType::kI64},
    {"<u2", DataType::kU16}};

uint32_t LittleEndian(absl::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) {
    value = value << 8 | static_cast<uint8_t>(bytes[i]);
  }
  return value;
}

// Removes the header, a Python dict literal, from `*bytes` and returns it.
// Leaves the data.
absl::StatusOr<absl::string_view> TakeHeader(absl::string_view* bytes,
                                             const std::string& name) {
  if (!absl::ConsumePrefix(bytes, kMagic) || bytes->size() < 2) {
    return Malformed(name, "no NumPy magic", "a .npy file");
  }
  const int version = static_cast<unsigned char>((*bytes)[0]);
  if (version < 1 || version > 3) {
    return Malformed(name, absl::StrCat(".npy version ", version), "1, 2 or 3");
  }
  const size_t width = version == 1 ? 2 : 4;
  bytes->remove_prefix(2);
  if (bytes->size() < width) return Malformed(name, "a cut header", "a length");
  const size_t length = LittleEndian(bytes->substr(0, width));
  bytes->remove_prefix(width);
  if (bytes->size() < length) {
    return Malformed(name, "a cut header",
                     absl::StrCat(length, " bytes of it"));
  }
  const absl::string_view header = bytes->substr(0, length);
  bytes->remove_prefix(length);
  return header;
}

// Returns the text after 'key': in the header.
absl::StatusOr<absl::string_view> ValueOf(absl::string_view header,
                                          absl::string_view key,
                                          const std::string& name) {
  const std::string quoted = absl::StrCat("'", key, "':");
  const size_t at = header.find(quoted);
  if (at == absl::string_view::npos) {
    return Malformed(name, "a header without it", quoted);
  }
  return absl::StripLeadingAsciiWhitespace(header.substr(at + quoted.size()));
}

absl::StatusOr<DataType> ParseDescr(absl::string_view header,
                                    const std::string& name) {
  ASSIGN_OR_RETURN(const absl::string_view value,
                   ValueOf(header, "descr", name));
  const absl::string_view descr = value.substr(0, value.find_first_of(",}"));
  for (const auto& [text, dtype] : kDescrs) {
    if (descr == absl::StrCat("'", text, "'")) return dtype;
  }
  return Malformed(name, absl::StrCat("dtype ", descr),
                   "'<f4' (f32), '<f2' (f16), '|V2' (bf16), '|u1' (u8), "
                   "'<u2' (u16), '<i8' (i64)");
}

absl::StatusOr<std::vector<int64_t>> ParseShape(absl::string_view header,
                                                const std::string& name) {
  ASSIGN_OR_RETURN(absl::string_view value, ValueOf(header, "shape", name));
  const size_t end = value.find(')');
  if (!absl::ConsumePrefix(&value, "(") || end == absl::string_view::npos) {
    return Malformed(name, "a header without it", "'shape': (...)");
  }
  std::vector<int64_t> shape;
  for (absl::string_view part :
       absl::StrSplit(value.substr(0, end - 1), ',', absl::SkipWhitespace())) {
    part = absl::StripAsciiWhitespace(part);
    int64_t extent;
    if (!absl::SimpleAtoi(part, &extent) || extent < 0) {
      return Malformed(name, absl::StrCat("extent ", part), "a number >= 0");
    }
    shape.push_back(extent);
  }
  return shape;
}

absl::string_view DescrOf(DataType dtype) {
  size_t i = 0;
  while (kDescrs[i].second != dtype) ++i;
  return kDescrs[i].first;
}

// Returns e.g. "(2, 3)", "(2,)" or "()".
std::string PythonTuple(const std::vector<int64_t>& shape) {
  return absl::StrCat("(", absl::StrJoin(shape, ", "),
                      shape.size() == 1 ? ",)" : ")");
}

// Returns the path of the file that symbolic links at `path` name.
std::string TargetOf(const std::string& path) {
  constexpr int kMaxLinks = 40;  // As in Linux.
  std::filesystem::path target = path;
  std::error_code ignored;
  for (int i = 0; i < kMaxLinks && is_symlink(target, ignored); ++i) {
    target = target.parent_path() / read_symlink(target, ignored);
  }
  return target.string();
}

}  // namespace

absl::StatusOr<NpyArray> ParseNpy(absl::string_view bytes,
                                  const std::string& name) {
  ASSIGN_OR_RETURN(const absl::string_view header, TakeHeader(&bytes, name));
  NpyArray array;
  ASSIGN_OR_RETURN(array.dtype, ParseDescr(header, name));
  ASSIGN_OR_RETURN(array.shape, ParseShape(header, name));
  ASSIGN_OR_RETURN(const absl::string_view order,
                   ValueOf(header, "fortran_order", name));
  if (!absl::StartsWith(order, "False") && array.shape.size() > 1) {
    return Malformed(name, "Fortran order",
                     "C order; numpy.ascontiguousarray makes it");
  }
  auto expected = CheckedProduct(array.shape);
  if (expected) expected = CheckedMul(*expected, ByteSizeOf(array.dtype));
  if (!expected || static_cast<uint64_t>(*expected) != bytes.size()) {
    return Malformed(
        name, absl::StrCat(bytes.size(), " bytes of data"),
        expected ? absl::StrCat(*expected) : "a shape that fits in memory");
  }
  array.data.assign(bytes.data(), bytes.size());
  return array;
}

std::string SerializeNpy(const NpyArray& array) {
  std::string header = absl::StrCat(
      "{'descr': '", DescrOf(array.dtype),
      "', 'fortran_order': False, 'shape': ", PythonTuple(array.shape), ", }");
  // Bytes before the header: magic, two of version, two of length. The header
  // ends in a newline.
  constexpr size_t kPreamble = 10;
  while ((kPreamble + header.size() + 1) % kDataAlignment != 0) header += ' ';
  header += '\n';
  std::string bytes(kMagic);
  bytes += '\x01';
  bytes += '\x00';
  bytes += static_cast<char>(header.size() & 0xff);
  bytes += static_cast<char>(header.size() >> 8);
  return absl::StrCat(bytes, header, array.data);
}

absl::StatusOr<NpyArray> ReadNpy(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  std::error_code ignored;
  if (!file || std::filesystem::is_directory(path, ignored)) {
    return MakeError(
        absl::StatusCode::kNotFound,
        {Reason::kMissing, path, "no readable file", "a .npy file"});
  }
  return ParseNpy(std::move(bytes).str(), path);
}

absl::Status WriteNpy(const std::string& path, const NpyArray& array) {
  const std::string target = TargetOf(path);
  // Leaves the file as it was until the new one is complete.
  const std::string beside = absl::StrCat(target, ".", getpid(), ".tmp");
  std::ofstream file(beside, std::ios::binary);
  file << SerializeNpy(array);
  file.close();
  if (file && std::rename(beside.c_str(), target.c_str()) == 0) {
    return absl::OkStatus();
  }
  std::remove(beside.c_str());
  return MakeError(absl::StatusCode::kInternal,
                   {Reason::kInternal, path, "a file that can't be written",
                    "an existing directory with room and permission"});
}

}  // namespace convgrad
