// These functions handle calls that keep, restore and drop snapshots of a
// durable session.
#pragma once

#include "absl/status/status.h"
#include "server/rpc/calls/message_call.h"

namespace convgrad {

// Handles SaveState. Answers when a snapshot of the session is on disk.
absl::Status HandleSaveState(PlainCall* call);

// Handles RestoreState. Commits the content of a snapshot as one change.
absl::Status HandleRestoreState(PlainCall* call);

// Handles DropState. Answers when the name isn't on disk.
absl::Status HandleDropState(PlainCall* call);

}  // namespace convgrad
