// A server that belongs to one process: it ends with it, and leaves nothing.
#pragma once

#include <signal.h>

#include <string>

namespace convgrad {

// Blocks until one of `signals`, which every thread blocks, has come, and
// returns it. Returns SIGTERM when process `parent`, which started this one,
// has ended; with 0 it waits for signals alone.
int WaitForSignalOrParent(const sigset_t& signals, int parent);

// Removes the sockets in `folder`, then the folder if nothing else is in it.
// Does nothing if `folder` is empty.
void RemoveSocketFolder(const std::string& folder);

}  // namespace convgrad
