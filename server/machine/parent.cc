#include "server/machine/parent.h"

#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <filesystem>
#include <system_error>

namespace convgrad {
namespace {

// How often to look whether the parent is there. PR_SET_PDEATHSIG isn't used:
// its signal comes when the thread ends that has started this process.
constexpr timespec kPeriod = {0, 200'000'000};

}  // namespace

int WaitForSignalOrParent(const sigset_t& signals, int parent) {
  while (true) {
    if (parent == 0) {
      int signal = 0;
      if (sigwait(&signals, &signal) == 0) return signal;
      continue;
    }
    // Who has lost its parent gets another one, whichever that is.
    if (getppid() != parent) return SIGTERM;
    const int signal = sigtimedwait(&signals, nullptr, &kPeriod);
    if (signal > 0) return signal;
  }
}

void RemoveSocketFolder(const std::string& folder) {
  if (folder.empty()) return;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator();
       entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_socket(ignored)) unlink(entry->path().c_str());
  }
  rmdir(folder.c_str());
}

}  // namespace convgrad
