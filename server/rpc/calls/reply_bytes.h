// These functions convert the stored reply of a change to bytes and back.
//
// Thread-safe: free functions without state.
#pragma once

#include "absl/status/statusor.h"
#include "server/memory/shared_bytes.h"
#include "server/sessions/change_order.h"

namespace convgrad {

// Returns the reply's bytes in one piece, which copies them if they aren't.
// Errors: kResourceExhausted, reason BUSY, if there is no memory for them.
absl::StatusOr<SharedBytes> BytesOfReply(const ChangeOrder::Reply& reply);

// Returns a reply that shares `bytes`.
ChangeOrder::Reply ReplyOver(const SharedBytes& bytes);

}  // namespace convgrad
