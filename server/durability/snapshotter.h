// `Snapshotter` writes durable sessions to disk and loads them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "backends/core/mutex.h"
#include "server/durability/image_conversion.h"
#include "server/durability/snapshot_pacing.h"
#include "server/machine/background_thread.h"
#include "server/sessions/session_archive.h"
#include "server/sessions/session_table.h"
#include "server/snapshots/snapshot_store.h"

namespace convgrad {

// One thread of its own writes and removes, one session at a time. It writes a
// session when it is asked to (Save), and when SnapshotPacing says so. Training
// continues meanwhile, because a capture is immutable. A snapshot that fails is
// logged and tried again; the session isn't affected. What clients ask for, it
// does client after client, and the requests of one client in order.
// Thread-safe.
class Snapshotter final : public SessionArchive {
 public:
  struct Options {
    // See SnapshotPacing.
    absl::Duration interval;
    ReplyFormat replies;
    // Runs a task that loads a session of `client`, on another thread, after
    // the client's tasks before it. It runs all tasks before the Snapshotter is
    // destroyed.
    std::function<void(const std::string& client, std::function<void()> task)>
        load;
    // The facts of this server.
    MachineFacts facts = {};
  };
  // Counts since the start.
  struct Counts {
    int64_t written = 0;
    int64_t failed = 0;
    absl::Duration time;  // Of both.
    int64_t bytes = 0;    // Of the sessions that were written.
  };

  // `sessions` and `store` outlive this.
  Snapshotter(SessionTable* sessions, SnapshotStore* store, Options options);
  // Does what Save and Remove have asked for.
  ~Snapshotter() override = default;

  void Load(const std::shared_ptr<KeptSession>& session) override;
  void Forget(const std::shared_ptr<KeptSession>& session) override;
  // Errors: kInternal with the reason why the server can't write.
  void Save(const std::shared_ptr<KeptSession>& session, Done done) override;
  // Errors: as Save; kNotFound if the session has ended; those of
  // KeptSession::AddSnapshot.
  void Keep(const std::shared_ptr<KeptSession>& session,
            const std::string& name, Done done) override;
  void LoadNamed(const std::shared_ptr<KeptSession>& session,
                 const std::string& name, Loaded done) override;
  // Errors: as Save; kNotFound if the session has ended.
  void Drop(const std::shared_ptr<KeptSession>& session,
            const std::string& name, Done done) override;
  // Tries again later if it fails. Errors: as Save.
  void Remove(const std::string& client, const std::string& hash,
              Done done) override;

  // Writes all sessions that have changed, once each, and blocks until that is
  // done. Returns whether none failed.
  bool SaveAll();

  Counts counts() const;

 private:
  // Writes sessions that are due, the one with the oldest change first. After
  // one of them it returns if there is a task.
  void WriteDue();
  absl::Status Write(KeptSession* session);
  // Tries again to remove sessions that the disk kept.
  void RemoveDue();
  absl::Status RemoveNow(const std::string& hash);
  // Writes the session. Errors: as Save; kNotFound if the session has ended.
  absl::Status WriteOpen(KeptSession* session);
  // Keeps what the last Write of the session has written.
  absl::Status KeepNewest(KeptSession* session, const std::string& name);
  absl::Status WriteCapture(const KeptSession& session,
                            const SessionCapture& capture, int64_t* bytes);

  SessionTable* const sessions_;
  SnapshotStore* const store_;
  const Options options_;
  // Only the thread uses these three.
  SnapshotPacing pacing_;
  // Hashes of closed sessions that couldn't be removed.
  std::set<std::string> unremoved_;
  // Handles of sessions whose last snapshot with a name wasn't kept.
  std::set<std::string> unkept_;
  mutable Mutex mutex_;
  Counts counts_ ABSL_GUARDED_BY(mutex_);
  // Declared last, because its tasks use the members above.
  BackgroundThread thread_;
};

}  // namespace convgrad
