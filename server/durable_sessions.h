// `DurableSessions` makes the sessions of a server survive it, in the folder of
// --state_dir.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "server/durability/snapshotter.h"
#include "server/flags/config.h"
#include "server/machine/background_thread.h"
#include "server/sessions/session_table.h"
#include "server/snapshots/snapshot_store.h"
#include "server/telemetry/readings.h"

namespace convgrad {

// `DurableSessions` is thread-safe.
class DurableSessions {
 public:
  // Takes the folder, and adds the sessions in it to `*sessions`, which
  // outlives this. Null without --state_dir. Call it before calls come. Errors:
  // kInvalidArgument naming the flag, if the folder can't be used.
  static absl::StatusOr<std::unique_ptr<DurableSessions>> Start(
      const Config& config, const MachineFacts& facts, SessionTable* sessions);
  DurableSessions(std::unique_ptr<SnapshotStore> store, const Config& config,
                  const MachineFacts& facts, SessionTable* sessions);

  // Writes what has changed, and blocks until it is written or has failed.
  // Returns whether nothing failed.
  bool SaveAll() { return snapshotter_.SaveAll(); }

  void AddReadings(Readings* all) const;

 private:
  absl::Status AddStored();

  SessionTable* const sessions_;
  const std::unique_ptr<SnapshotStore> store_;
  Snapshotter snapshotter_;
  // Destroyed first, because its tasks use the snapshotter.
  BackgroundThread loader_{1};
};

}  // namespace convgrad
