#include "server/machine/parent.h"

#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <system_error>

namespace convgrad {
namespace {

// The period of the checks for the parent. PR_SET_PDEATHSIG isn't used, because
// its signal comes when the thread that started this process ends.
constexpr timespec kPeriod = {0, 200'000'000};

}  // namespace

int WaitForSignalOrParent(const sigset_t& signals, int parent) {
  while (true) {
    if (parent == 0) {
      int signal = 0;
      if (sigwait(&signals, &signal) == 0) return signal;
      continue;
    }
    // A process whose parent has ended gets another parent.
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
