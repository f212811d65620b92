#include "client/cpp/command_line/support_table.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/codec/codec.h"

namespace convgrad {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::RepeatedField;

std::string Names(const RepeatedField<int>& values,
                  const EnumDescriptor& type) {
  return absl::StrJoin(values, ", ", [&](std::string* text, int value) {
    text->append(ShortName(type, value));
  });
}

}  // namespace

std::string SupportTable(const v1::GetCapabilitiesResponse& response) {
  std::string rows[] = {"| |",
                        "|---|",
                        "| dtypes |",
                        "| layouts |",
                        "| spatial axes |",
                        "| results |",
                        "| valid, but refused |"};
  for (const v1::BackendCapabilities& backend : response.backends()) {
    if (!backend.available()) continue;
    absl::StrAppend(&rows[0], " ", backend.name(), " |");
    absl::StrAppend(&rows[1], "---|");
    absl::StrAppend(&rows[2], " ",
                    absl::AsciiStrToLower(
                        Names(backend.dtypes(), *v1::DataType_descriptor())),
                    " |");
    absl::StrAppend(&rows[3], " ",
                    Names(backend.layouts(), *v1::Layout_descriptor()), " |");
    absl::StrAppend(&rows[4], " 0 (linear) to ", backend.max_spatial_axes(),
                    " |");
    absl::StrAppend(&rows[5], " ",
                    absl::AsciiStrToLower(
                        Names(backend.results(), *v1::Result_descriptor())),
                    " |");
    absl::StrAppend(&rows[6], " ",
                    backend.gaps().empty()
                        ? "nothing"
                        : absl::StrJoin(backend.gaps(), ", "),
                    " |");
  }
  return absl::StrCat(absl::StrJoin(rows, "\n"), "\n");
}

}  // namespace convgrad
