#include "tests/cases/case_folder.h"

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <mutex>
#include <thread>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "tests/cases/case_report.h"
#include "tests/cases/record_runs.h"

ABSL_FLAG(std::string, tier, "S,M", "tiers to run, of S, M and L");
ABSL_FLAG(std::string, files, "", "names of files to run, empty for all");
ABSL_FLAG(std::string, ids, "", "ids of records to run, empty for all");
ABSL_FLAG(std::string, dtypes, "f32,bf16,f16", "dtypes to run");
ABSL_FLAG(int, every_m, 1, "run each that-many-th record of tier M");
ABSL_FLAG(int, shares, 1, "processes that run a part of the records each");
ABSL_FLAG(int, share, 0, "which of them this is");
ABSL_FLAG(absl::Duration, time_budget, absl::InfiniteDuration(),
          "start no record after this time");
ABSL_FLAG(bool, list_failures, false, "print all failures, not the first 20");
ABSL_FLAG(bool, allow_unimplemented, false,
          "UNIMPLEMENTED for a valid record is no failure");
ABSL_FLAG(int, threads, 2, "records in flight");

namespace convgrad::testing_support {
namespace {

namespace fs = std::filesystem;

// A record of at least this size runs alone.
constexpr double kLargeBytes = 256e6;

// The most memory of a record as a multiple of its tensors: operands in this
// program, in the message, aligned and reordered, and the results likewise.
constexpr double kCopies = 5;

// Returns the bytes of memory that are available now.
double AvailableBytes() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  double kilobytes = 0;
  while (file >> key) {
    if (key == "MemAvailable:" && file >> kilobytes) return kilobytes * 1024;
  }
  return std::numeric_limits<double>::infinity();
}

// Returns whether other tests read the file: rules (end_to_end), packed vectors
// (backends).
bool IsElsewhere(const std::string& name) {
  return name == "adversarial.jsonl" || name == "layouts.jsonl";
}

bool Has(const std::string& list, const std::string& name) {
  const std::vector<std::string> names =
      absl::StrSplit(list, ',', absl::SkipEmpty());
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool IsWanted(const std::string& list, const std::string& name) {
  return list.empty() || Has(list, name);
}

std::vector<DataType> WantedDtypes() {
  std::vector<DataType> dtypes;
  const std::string names = absl::GetFlag(FLAGS_dtypes);
  for (absl::string_view name : absl::StrSplit(names, ',')) {
    const auto dtype = ParseDataType(name);
    if (dtype) dtypes.push_back(*dtype);
  }
  return dtypes;
}

// Keeps the records that the flags select.
std::vector<CaseRecord> Select(std::vector<CaseRecord> records) {
  std::vector<CaseRecord> selected;
  int seen = 0, seen_m = 0;
  for (CaseRecord& record : records) {
    if (seen++ % absl::GetFlag(FLAGS_shares) != absl::GetFlag(FLAGS_share)) {
      continue;
    }
    if (!Has(absl::GetFlag(FLAGS_tier), std::string(1, record.tier))) continue;
    if (!IsWanted(absl::GetFlag(FLAGS_ids), record.id)) continue;
    if (record.tier == 'M' && seen_m++ % absl::GetFlag(FLAGS_every_m) != 0) {
      continue;
    }
    selected.push_back(std::move(record));
  }
  return selected;
}

// Runs all records of all files, one file after the other.
class Driver {
 public:
  Driver(const CaseTarget& target, CaseReport* report)
      : target_(target),
        report_(*report),
        dtypes_(WantedDtypes()),
        end_(absl::Now() + absl::GetFlag(FLAGS_time_budget)) {}

  void RunFile(const std::string& name, const std::vector<CaseRecord>& records);

  // The number of records that the time budget left out.
  int left_out() const { return left_out_; }

 private:
  void RunOne(const CaseRecord& record);

  const CaseTarget& target_;
  CaseReport& report_;
  const std::vector<DataType> dtypes_;
  const absl::Time end_;
  std::mutex report_mutex_;
  std::mutex large_mutex_;
  std::atomic<int> left_out_ = 0;
};

void Driver::RunOne(const CaseRecord& record) {
  if (absl::Now() > end_) {
    ++left_out_;
    return;
  }
  std::unique_lock<std::mutex> alone(large_mutex_, std::defer_lock);
  const double bytes = TensorBytes(record);
  if (bytes > kLargeBytes) alone.lock();
  const std::string problem =
      record.validity.ok() ? ToString(record.problem) : "";
  {
    std::lock_guard<std::mutex> lock(report_mutex_);
    report_.CountRecord();
    if (bytes > kLargeBytes && kCopies * bytes > AvailableBytes()) {
      report_.Add(
          record.id, problem,
          {Verdict::kSkipped,
           absl::StrCat("needs ", kCopies * bytes, " bytes of memory"), 0});
      return;
    }
  }
  RunRecord(target_, record, dtypes_,
            [&](const std::string& run, const Outcome& outcome) {
              std::lock_guard<std::mutex> lock(report_mutex_);
              report_.Add(absl::StrCat(record.id, " ", run), problem, outcome);
            });
}

void Driver::RunFile(const std::string& name,
                     const std::vector<CaseRecord>& records) {
  const absl::Time start = absl::Now();
  report_.StartFile(name);
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < records.size(); i = next++) RunOne(records[i]);
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < absl::GetFlag(FLAGS_threads); ++i) {
    threads.emplace_back(work);
  }
  for (std::thread& thread : threads) thread.join();
  report_.EndFile(absl::Now() - start);
  std::cout << name << ": " << absl::FormatDuration(absl::Now() - start)
            << std::endl;
}

std::string Folder() {
  const char* folder = std::getenv("CONVGRAD_CASES");
  return folder != nullptr ? folder : CONVGRAD_DEFAULT_CASES;
}

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".jsonl") {
      names.push_back(entry.path().filename());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Returns false if a file can't be read.
bool RunFolder(const std::string& folder, Driver* driver) {
  for (const std::string& name : FilesIn(folder)) {
    if (!IsWanted(absl::GetFlag(FLAGS_files), name)) continue;
    if (IsElsewhere(name)) {
      std::cout << name << ": run elsewhere\n";
      continue;
    }
    auto records = ReadCases(absl::StrCat(folder, "/", name));
    if (!records.ok()) {
      std::cout << records.status() << "\n";
      return false;
    }
    driver->RunFile(name, Select(*std::move(records)));
  }
  return true;
}

}  // namespace

int RunCaseFolder(const StartTarget& start) {
  const std::string folder = Folder();
  if (!fs::is_directory(folder)) {
    std::cout << "NOTHING WAS RUN: there is no folder " << folder
              << " with the published cases; CONVGRAD_CASES names another\n";
    return 0;
  }
  const auto target = start();
  if (!target.ok()) {
    std::cout << target.status() << "\n";
    return 1;
  }
  CaseReport report(absl::GetFlag(FLAGS_list_failures), &std::cout);
  Driver driver(**target, &report);
  const bool all_read = RunFolder(folder, &driver);
  report.PrintTable();
  if (driver.left_out() > 0) {
    std::cout << "INCOMPLETE: " << driver.left_out()
              << " records left out, --time_budget\n";
  }
  if (report.runs() == 0) std::cout << "NOTHING WAS RUN: no record matched\n";
  const bool refused =
      report.refused() > 0 && !absl::GetFlag(FLAGS_allow_unimplemented);
  return all_read && report.runs() > 0 && report.failed() == 0 && !refused ? 0
                                                                           : 1;
}

}  // namespace convgrad::testing_support
