// `WaitForSignalOrParent` and `RemoveSocketFolder` end a server together with
// the process that started it, and leave no files.
#pragma once

#include <signal.h>

#include <string>

namespace convgrad {

// Blocks until one of `signals` arrives, and returns it. Returns SIGTERM when
// process `parent`, which started this one, has ended; 0 stands for no process.
// Requires: every thread blocks `signals`.
int WaitForSignalOrParent(const sigset_t& signals, int parent);

// Removes the sockets in `folder`, then the folder if nothing else is in it.
// Does nothing if `folder` is empty.
void RemoveSocketFolder(const std::string& folder);

}  // namespace convgrad
