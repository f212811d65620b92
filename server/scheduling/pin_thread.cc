#include "server/scheduling/pin_thread.h"

#include <pthread.h>
#include <sched.h>

namespace convgrad {

void PinThisThread(const std::vector<int>& cores) {
  if (cores.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int core : cores) CPU_SET(core, &set);
  // The call fails if a container lost a core since the start. The thread then
  // stays unpinned.
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

}  // namespace convgrad
