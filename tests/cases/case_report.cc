#include "tests/cases/case_report.h"

#include "absl/strings/str_format.h"

namespace convgrad::testing_support {
namespace {

constexpr int kFailuresShown = 20;

std::string Row(const FileSummary& summary) {
  return absl::StrFormat("| %s | %d | %d | %d | %d | %d | %d | %d | %.1f |\n",
                         summary.file, summary.records, summary.runs,
                         summary.passed, summary.failed, summary.refused,
                         summary.skipped, summary.elements,
                         absl::ToDoubleSeconds(summary.elapsed));
}

}  // namespace

CaseReport::CaseReport(bool list_failures, std::ostream* out)
    : list_failures_(list_failures), out_(*out) {}

void CaseReport::StartFile(const std::string& file) {
  files_.emplace_back();
  files_.back().file = file;
}

void CaseReport::Add(const std::string& run, const std::string& problem,
                     const Outcome& outcome) {
  FileSummary& file = files_.back();
  ++file.runs;
  file.elements += outcome.elements;
  switch (outcome.verdict) {
    case Verdict::kPassed:
      ++file.passed;
      return;
    case Verdict::kRefused:
      ++file.refused;
      ++refusals_[outcome.message];
      return;
    case Verdict::kSkipped:
      ++file.skipped;
      out_ << "SKIPPED " << run << " " << problem << "\n  " << outcome.message
           << std::endl;
      return;
    case Verdict::kFailed:
      ++file.failed;
      if (list_failures_ || failed() <= kFailuresShown) {
        out_ << "FAILED " << run << " " << problem << "\n  " << outcome.message
             << std::endl;
      }
      return;
  }
}

FileSummary CaseReport::Total() const {
  FileSummary total;
  total.file = "all";
  for (const FileSummary& file : files_) {
    total.records += file.records;
    total.runs += file.runs;
    total.passed += file.passed;
    total.failed += file.failed;
    total.refused += file.refused;
    total.skipped += file.skipped;
    total.elements += file.elements;
    total.elapsed += file.elapsed;
  }
  return total;
}

void CaseReport::PrintTable() const {
  if (failed() > kFailuresShown && !list_failures_) {
    out_ << failed() - kFailuresShown
         << " more failures; --list_failures shows them\n";
  }
  out_ << "\n| file | records | runs | passed | failed | refused | skipped | "
          "elements compared | seconds |\n"
          "|---|--:|--:|--:|--:|--:|--:|--:|--:|\n";
  for (const FileSummary& file : files_) out_ << Row(file);
  out_ << Row(Total());
  for (const auto& [reason, count] : refusals_) {
    out_ << "refused " << count << " x " << reason << "\n";
  }
  out_ << std::flush;
}

}  // namespace convgrad::testing_support
