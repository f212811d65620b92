#include "server/snapshots/safetensors.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "backends/core/checked_math.h"
#include "backends/core/status.h"
#include "nlohmann/json.hpp"

namespace convgrad {
namespace {

constexpr absl::string_view kMetadata = "__metadata__";
constexpr int64_t kAlignment = 64;
// Limits that keep the memory for a hostile header proportional to it.
constexpr size_t kMostAxes = 32;
constexpr size_t kMostMetadata = 1024;

constexpr std::pair<absl::string_view, int64_t> kDtypes[] = {
    {"F64", 8},  {"I64", 8}, {"U64", 8},  {"F32", 4},     {"I32", 4},
    {"U32", 4},  {"F16", 2}, {"BF16", 2}, {"I16", 2},     {"U16", 2},
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},   {"F8_E4M3", 1}, {"F8_E5M2", 1}};

// Returns text of a file as a part of an error: short, and without control
// characters.
std::string Shown(absl::string_view text) {
  constexpr size_t kLongest = 64;
  return absl::StrCat("'", absl::CHexEscape(text.substr(0, kLongest)),
                      text.size() > kLongest ? "..." : "", "'");
}

// `HeaderReader` receives the events of nlohmann-json's parser. The parser
// stops when a function returns false; `error` then says why.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return Unexpected("null"); }
  bool boolean(bool value) override {
    return Unexpected(value ? "true" : "false");
  }
  bool number_integer(int64_t value) override {
    return Unexpected(absl::StrCat(value));
  }
  bool number_unsigned(uint64_t value) override {
    if (place_ != Place::kNumbers ||
        value > uint64_t{std::numeric_limits<int64_t>::max()}) {
      return Unexpected(absl::StrCat(value));
    }
    if (numbers_->size() == kMostAxes) return Unexpected("a long array");
    numbers_->push_back(static_cast<int64_t>(value));
    return true;
  }
  bool number_float(double /*value*/, const std::string& text) override {
    return Unexpected(Shown(text));
  }
  bool string(std::string& value) override {
    if (place_ == Place::kMetadata) return true;
    if (place_ != Place::kTensor || field_ != "dtype") {
      return Unexpected(Shown(value));
    }
    entry_.dtype = std::move(value);
    return true;
  }
  bool binary(nlohmann::json::binary_t& /*value*/) override {
    return Unexpected("binary data");
  }

  bool start_object(size_t /*size*/) override {
    if (place_ == Place::kStart) {
      place_ = Place::kTop;
    } else if (place_ == Place::kTop) {
      place_ = name_ == kMetadata ? Place::kMetadata : Place::kTensor;
      entry_ = {};
      offsets_.clear();
      fields_.clear();
    } else {
      return Unexpected("an object");
    }
    return true;
  }
  bool key(std::string& key) override {
    if (place_ == Place::kTop) {
      name_ = key;
      field_.clear();
      if (!names_.insert(std::move(key)).second) return Repeated();
      return true;
    }
    field_ = key;
    if (place_ == Place::kTensor && field_ != "dtype" && field_ != "shape" &&
        field_ != "data_offsets") {
      return Unexpected("an unknown key");
    }
    if (fields_.size() == kMostMetadata) return Unexpected("more keys");
    if (!fields_.insert(std::move(key)).second) return Repeated();
    return true;
  }
  bool end_object() override {
    if (place_ == Place::kTop) {
      place_ = Place::kEnd;
      return true;
    }
    if (place_ == Place::kTensor && !EndTensor()) return false;
    place_ = Place::kTop;
    return true;
  }
  bool start_array(size_t /*size*/) override {
    if (place_ != Place::kTensor || field_ == "dtype") {
      return Unexpected("an array");
    }
    numbers_ = field_ == "shape" ? &entry_.shape : &offsets_;
    place_ = Place::kNumbers;
    return true;
  }
  bool end_array() override {
    place_ = Place::kTensor;
    return true;
  }
  bool parse_error(size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& /*error*/) override {
    error = InvalidField(Reason::kMalformed, "header",
                         absl::StrCat("no JSON at byte ", position),
                         "a JSON object");
    return false;
  }

  std::vector<SafetensorsEntry> entries;
  absl::Status error;

 private:
  enum class Place { kStart, kTop, kTensor, kMetadata, kNumbers, kEnd };

  // Names the key that is read now.
  std::string Path() const {
    std::string path = "header";
    if (place_ != Place::kStart) absl::StrAppend(&path, ".", Shown(name_));
    if (!field_.empty()) absl::StrAppend(&path, ".", Shown(field_));
    return path;
  }
  bool Refuse(absl::string_view found, absl::string_view expected) {
    error = InvalidField(Reason::kMalformed, Path(), found, expected);
    return false;
  }
  bool Unexpected(absl::string_view found) {
    return Refuse(found, "a header of safetensors");
  }
  bool Repeated() { return Refuse("the key twice", "once"); }

  bool EndTensor() {
    if (fields_.size() != 3) {
      return Refuse(absl::StrCat("keys ", absl::StrJoin(fields_, ", ")),
                    "dtype, shape and data_offsets");
    }
    if (offsets_.size() != 2 || offsets_[0] > offsets_[1]) {
      return Refuse(
          absl::StrCat("data_offsets [", absl::StrJoin(offsets_, ","), "]"),
          "a begin and an end");
    }
    const auto element_bytes = SafetensorsElementBytes(entry_.dtype);
    if (!element_bytes) {
      return Refuse(absl::StrCat("dtype ", Shown(entry_.dtype)),
                    "a dtype of safetensors");
    }
    const auto elements = CheckedProduct(entry_.shape);
    const auto bytes =
        elements ? CheckedMul(*elements, *element_bytes) : std::nullopt;
    if (!bytes || *bytes != offsets_[1] - offsets_[0]) {
      return Refuse(absl::StrCat(offsets_[1] - offsets_[0], " bytes"),
                    bytes ? absl::StrCat(*bytes, ", as dtype and shape have")
                          : "a size below 2^63 bytes");
    }
    entry_.name = name_;
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    entries.push_back(std::move(entry_));
    return true;
  }

  Place place_ = Place::kStart;
  std::string name_;
  std::string field_;
  std::set<std::string> names_;
  std::set<std::string> fields_;
  SafetensorsEntry entry_;
  std::vector<int64_t> offsets_;
  std::vector<int64_t>* numbers_ = nullptr;
};

// Checks that each of the `data_bytes` belongs to exactly one entry. Requires:
// the entries are sorted.
absl::Status CheckCovered(const std::vector<SafetensorsEntry>& entries,
                          int64_t data_bytes) {
  int64_t next = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != next) {
      return InvalidField(
          Reason::kMalformed,
          absl::StrCat("header.", Shown(entry.name), ".data_offsets"),
          absl::StrCat(entry.begin, entry.begin < next ? " (an overlap)"
                                                       : " (a hole before)"),
          next);
    }
    next = entry.end;
  }
  if (next == data_bytes) return absl::OkStatus();
  return InvalidField(Reason::kByteCountMismatch, "header",
                      absl::StrCat("tensors of ", next, " bytes"),
                      absl::StrCat(data_bytes, ", as the file has"));
}

}  // namespace

std::optional<int64_t> SafetensorsElementBytes(absl::string_view dtype) {
  for (const auto& [name, bytes] : kDtypes) {
    if (name == dtype) return bytes;
  }
  return std::nullopt;
}

std::string MakeSafetensorsHeader(
    const std::vector<SafetensorsEntry>& entries) {
  std::string header(kSafetensorsLengthBytes, '\0');
  absl::string_view separator = "{";
  for (const SafetensorsEntry& entry : entries) {
    absl::StrAppend(
        &header, separator, "\"",
        absl::StrReplaceAll(entry.name, {{"\"", "\\\""}, {"\\", "\\\\"}}),
        R"(":{"dtype":")", entry.dtype, R"(","shape":[)",
        absl::StrJoin(entry.shape, ","), R"(],"data_offsets":[)", entry.begin,
        ",", entry.end, "]}");
    separator = ",";
  }
  absl::StrAppend(&header, entries.empty() ? "{}" : "}");
  const auto written = std::ssize(header);
  header.append(CeilDiv(written, kAlignment) * kAlignment - written, ' ');
  const uint64_t length = header.size() - kSafetensorsLengthBytes;
  for (int i = 0; i < kSafetensorsLengthBytes; ++i) {
    header[i] = static_cast<char>(length >> (8 * i));
  }
  return header;
}

absl::StatusOr<int64_t> ReadSafetensorsLength(absl::string_view length,
                                              int64_t file_bytes) {
  const int64_t most = std::min(kMaxSafetensorsHeaderBytes,
                                file_bytes - kSafetensorsLengthBytes);
  if (length.size() != kSafetensorsLengthBytes || most < 0) {
    return InvalidField(Reason::kByteCountMismatch, "header length",
                        absl::StrCat("a file of ", file_bytes, " bytes"),
                        "at least 8");
  }
  uint64_t value = 0;
  for (int i = 0; i < kSafetensorsLengthBytes; ++i) {
    value |= uint64_t{static_cast<unsigned char>(length[i])} << (8 * i);
  }
  if (value <= static_cast<uint64_t>(most)) return static_cast<int64_t>(value);
  return InvalidField(Reason::kOutOfRange, "header length", value,
                      absl::StrCat("at most ", most));
}

absl::StatusOr<std::vector<SafetensorsEntry>> ParseSafetensorsHeader(
    absl::string_view header, int64_t data_bytes) {
  HeaderReader reader;
  if (!nlohmann::json::sax_parse(header.begin(), header.end(), &reader)) {
    return reader.error;
  }
  // Stable, so that empty tensors stay in the order of the header.
  std::stable_sort(reader.entries.begin(), reader.entries.end(),
                   [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
                     return std::pair(a.begin, a.end) <
                            std::pair(b.begin, b.end);
                   });
  RETURN_IF_ERROR(CheckCovered(reader.entries, data_bytes));
  return std::move(reader.entries);
}

}  // namespace convgrad
