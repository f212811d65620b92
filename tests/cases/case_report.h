// `CaseReport` collects outcomes of cases and prints them as a Markdown table.
#pragma once

#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/cases/case_target.h"

namespace convgrad::testing_support {

struct FileSummary {
  std::string file;
  int records = 0;
  int runs = 0;  // passed + failed + refused + skipped
  int passed = 0;
  int failed = 0;
  int refused = 0;
  int skipped = 0;
  int64_t elements = 0;
  absl::Duration elapsed;
};

// Prints failures and skips as they come. Not thread-safe.
class CaseReport {
 public:
  // Prints all failures, or only the first 20.
  CaseReport(bool list_failures, std::ostream* out);

  void StartFile(const std::string& file);
  void CountRecord() { ++files_.back().records; }
  // `run` names record, dtype, layouts and data; `problem` is its string.
  void Add(const std::string& run, const std::string& problem,
           const Outcome& outcome);
  void EndFile(absl::Duration elapsed) { files_.back().elapsed = elapsed; }

  // Prints the table, then the reasons of refusals and skips with their counts.
  void PrintTable() const;

  int failed() const { return Total().failed; }
  int refused() const { return Total().refused; }
  int runs() const { return Total().runs; }

 private:
  FileSummary Total() const;

  const bool list_failures_;
  std::ostream& out_;
  std::vector<FileSummary> files_;
  std::map<std::string, int> refusals_;
};

}  // namespace convgrad::testing_support
