#include "server/snapshots/safetensors.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "backends/core/checked_math.h"

namespace convgrad {

std::string MakeSafetensorsHeader(const std::vector<ImageItem>& items,
                                  const std::vector<size_t>& part) {
  constexpr int64_t kLengthBytes = 8;
  constexpr int64_t kAlignment = 64;
  std::string header(kLengthBytes, '\0');
  absl::string_view separator = "{";
  int64_t offset = 0;
  for (const size_t i : part) {
    const ImageItem& item = items[i];
    const int64_t end = offset + item.bytes();
    absl::StrAppend(
        &header, separator, "\"",
        absl::StrReplaceAll(item.name, {{"\"", "\\\""}, {"\\", "\\\\"}}),
        R"(":{"dtype":")", item.dtype, R"(","shape":[)",
        absl::StrJoin(item.shape, ","), R"(],"data_offsets":[)", offset, ",",
        end, "]}");
    separator = ",";
    offset = end;
  }
  absl::StrAppend(&header, part.empty() ? "{}" : "}");
  const auto written = std::ssize(header);
  header.append(CeilDiv(written, kAlignment) * kAlignment - written, ' ');
  const uint64_t length = header.size() - kLengthBytes;
  for (int i = 0; i < kLengthBytes; ++i) {
    header[i] = static_cast<char>(length >> (8 * i));
  }
  return header;
}

}  // namespace convgrad
