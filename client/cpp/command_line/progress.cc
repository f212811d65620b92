#include "client/cpp/command_line/progress.h"

#include <unistd.h>

#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

namespace convgrad {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(1);
constexpr absl::Duration kPeriod = absl::Milliseconds(200);
// Returns the cursor to the start of the line and erases the line.
constexpr char kWipe[] = "\r\x1b[K";

}  // namespace

Progress::Progress(std::string what, int total)
    : what_(std::move(what)), total_(total) {
  if (isatty(STDERR_FILENO) != 0) thread_ = std::thread([this] { Run(); });
}

Progress::~Progress() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyOne();
  }
  thread_.join();
}

void Progress::Advance() {
  MutexLock lock(&mutex_);
  ++done_;
}

void Progress::Run() {
  const absl::Time start = absl::Now();
  absl::Time next = start + kPatience;
  MutexLock lock(&mutex_);
  bool shown = false;
  while (!stopping_) {
    if (!changed_.WaitUntil(&mutex_, next)) continue;
    const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
    const std::string steps =
        total_ > 1 ? absl::StrCat(" ", done_, " of ", total_, ",") : "";
    std::cerr << kWipe << absl::StrFormat("%s:%s %.1f s", what_, steps, seconds)
              << std::flush;
    shown = true;
    next = absl::Now() + kPeriod;
  }
  if (shown) std::cerr << kWipe << std::flush;
}

}  // namespace convgrad
