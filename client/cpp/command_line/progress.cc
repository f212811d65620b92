#include "client/cpp/command_line/progress.h"

#include <unistd.h>

#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cpp/calls/stoppable_sleep.h"

namespace convgrad {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(1);
constexpr absl::Duration kPeriod = absl::Milliseconds(200);
// Returns the cursor to the start of the line and erases the line.
constexpr char kWipe[] = "\r\x1b[K";

}  // namespace

Progress::Progress(std::string what, int64_t total)
    : what_(std::move(what)), total_(total) {
  if (isatty(STDERR_FILENO) == 0) return;
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

void Progress::Run(const std::stop_token& stop) {
  const absl::Time start = absl::Now();
  bool shown = false;
  while (SleepUnlessStopped(stop, shown ? kPeriod : kPatience)) {
    const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
    const std::string count =
        total_ > 1 ? absl::StrCat(" ", done_.load(), " of ", total_, ",") : "";
    std::cerr << kWipe << absl::StrFormat("%s:%s %.1f s", what_, count, seconds)
              << std::flush;
    shown = true;
  }
  if (shown) std::cerr << kWipe << std::flush;
}

}  // namespace convgrad
