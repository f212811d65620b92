// These functions convert a captured session to the image that a snapshot
// stores, and back.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "server/memory/shared_bytes.h"
#include "server/sessions/kept_memory.h"
#include "server/sessions/session.h"
#include "server/sessions/session_capture.h"
#include "server/sessions/session_table.h"
#include "server/snapshots/session_image.h"
#include "server/snapshots/snapshot_store.h"

namespace convgrad {

// `ReplyFormat` converts stored replies, whose type only the calls know.
// The functions are thread-safe.
struct ReplyFormat {
  // Returns the reply's bytes in one piece.
  std::function<absl::StatusOr<SharedBytes>(const ChangeOrder::Reply& reply)>
      write;
  // Returns the reply with these bytes.
  std::function<ChangeOrder::Reply(const SharedBytes& bytes)> read;
};

// A session as a snapshot stores it. `paid` reserves the memory of copies.
// Move-only.
struct CapturedImage {
  SessionImage image;
  Reservation paid;
};

// Returns the session of a snapshot, whose tensors aren't loaded.
// Requires: entry.status.ok().
SessionTable::StoredSession StoredOf(const SnapshotEntry& entry);

// Returns the image of `capture`. It shares the bytes of the tensors. `facts`
// are those of this server.
// Errors: kResourceExhausted, reason BUSY, if there is no memory to copy
// replies.
absl::StatusOr<CapturedImage> Capture(const KeptSession::Settings& settings,
                                      const SessionCapture& capture,
                                      const MachineFacts& facts,
                                      const ReplyFormat& replies,
                                      KeptMemory* memory);

// Loads the newest intact snapshot of the session whose id has this hash, into
// memory that sessions keep. The capture's epochs are those of the image. Adds
// a message to `*broken` for each newer snapshot that is broken.
// Errors: those of SnapshotStore::Load, with an ErrorDetail; kDataLoss if the
// image's programs or tensors are inconsistent; kResourceExhausted if there is
// no memory.
absl::StatusOr<SessionCapture> LoadCapture(SnapshotStore* store,
                                           const std::string& hash,
                                           const ReplyFormat& replies,
                                           KeptMemory* memory,
                                           std::vector<std::string>* broken);

// Loads the snapshot `name` of the session in the same way. Its replies are
// dropped.
// Errors: as LoadCapture; kDataLoss has the field "name"; kNotFound, without an
// ErrorDetail.
absl::StatusOr<std::shared_ptr<const KeptState>> LoadNamedState(
    SnapshotStore* store, const std::string& hash, const std::string& name,
    KeptMemory* memory);

}  // namespace convgrad
