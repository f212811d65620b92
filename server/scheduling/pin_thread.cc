#include "server/scheduling/pin_thread.h"

#include <pthread.h>
#include <sched.h>

namespace convgrad {

void PinThisThread(const std::vector<int>& cores) {
  if (cores.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int core : cores) CPU_SET(core, &set);
  // Fails where a container took a core away since start-up: unpinned is right
  // then.
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

}  // namespace convgrad
