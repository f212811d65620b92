// These functions convert the stored reply of a change to bytes and back.
//
// Thread-safe: free functions without state.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/sessions/change_order.h"

namespace convgrad {

// Bytes that are valid as long as `owner` exists. Value type.
struct ReplyBytes {
  std::shared_ptr<const void> owner;
  absl::Span<const std::byte> bytes;
};

// Returns the reply's bytes in one piece, which copies them if they aren't.
// Errors: kResourceExhausted, reason BUSY, if there is no memory for them.
absl::StatusOr<ReplyBytes> BytesOfReply(const ChangeOrder::Reply& reply);

// Returns a reply that shares `bytes`.
ChangeOrder::Reply ReplyOver(const ReplyBytes& bytes);

}  // namespace convgrad
