#include "client/cpp/command_line/support_table.h"

#include <functional>
#include <vector>

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

std::string Dtypes(const v1::BackendCapabilities& backend) {
  return absl::AsciiStrToLower(
      Names(backend.dtypes(), *v1::DataType_descriptor()));
}

std::string Layouts(const v1::BackendCapabilities& backend) {
  return Names(backend.layouts(), *v1::Layout_descriptor());
}

std::string Results(const v1::BackendCapabilities& backend) {
  return absl::AsciiStrToLower(
      Names(backend.results(), *v1::Result_descriptor()));
}

std::string Axes(const v1::BackendCapabilities& backend) {
  return absl::StrCat("0 (linear) to ", backend.max_spatial_axes());
}

std::string Gaps(const v1::BackendCapabilities& backend) {
  return backend.gaps().empty() ? "nothing"
                                : absl::StrJoin(backend.gaps(), ", ");
}

struct Row {
  const char* title;
  std::string (*cell)(const v1::BackendCapabilities&);
};

constexpr Row kRows[] = {{"dtypes", &Dtypes},
                         {"layouts", &Layouts},
                         {"spatial axes", &Axes},
                         {"results", &Results},
                         {"valid, but refused", &Gaps}};

}  // namespace

std::string SupportTable(const v1::GetCapabilitiesResponse& response) {
  std::vector<v1::BackendCapabilities> available;
  for (const v1::BackendCapabilities& backend : response.backends()) {
    if (backend.available()) available.push_back(backend);
  }
  std::string table = "| |";
  std::string rule = "|---|";
  for (const v1::BackendCapabilities& backend : available) {
    absl::StrAppend(&table, " ", backend.name(), " |");
    absl::StrAppend(&rule, "---|");
  }
  absl::StrAppend(&table, "\n", rule, "\n");
  for (const Row& row : kRows) {
    absl::StrAppend(&table, "| ", row.title, " |");
    for (const v1::BackendCapabilities& backend : available) {
      absl::StrAppend(&table, " ", row.cell(backend), " |");
    }
    absl::StrAppend(&table, "\n");
  }
  return table;
}

}  // namespace convgrad
