#include "client/cpp/support_table.h"

#include <functional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace convgrad {
namespace {

// Returns the names of enum values without their common prefix.
template <typename Enum, typename Values, typename Name>
std::string Names(const Values& values, Name name_of, size_t prefix) {
  std::vector<std::string> names;
  for (int value : values) {
    names.push_back(name_of(static_cast<Enum>(value)).substr(prefix));
  }
  return absl::StrJoin(names, ", ");
}

std::string Dtypes(const v1::BackendCapabilities& backend) {
  return absl::AsciiStrToLower(
      Names<v1::DataType>(backend.dtypes(), v1::DataType_Name<v1::DataType>,
                          std::string("DATA_TYPE_").size()));
}

std::string Layouts(const v1::BackendCapabilities& backend) {
  return Names<v1::Layout>(backend.layouts(), v1::Layout_Name<v1::Layout>,
                           std::string("LAYOUT_").size());
}

std::string Results(const v1::BackendCapabilities& backend) {
  return absl::AsciiStrToLower(
      Names<v1::Result>(backend.results(), v1::Result_Name<v1::Result>,
                        std::string("RESULT_").size()));
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
