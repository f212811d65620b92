#include "server/durability/snapshotter.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "spdlog/spdlog.h"

namespace convgrad {
namespace {

// The longest time between two looks for sessions that are due.
constexpr absl::Duration kLook = absl::Seconds(1);

// Epochs after a start of the server are greater than all epochs before, which
// a snapshot may not know: the fencing number is their upper half.
int64_t FirstEpoch(int64_t fencing_number) { return fencing_number << 32; }

absl::Status CannotWrite(const absl::Status& why) {
  return MakeError(absl::StatusCode::kInternal,
                   {Reason::kInternal, "snapshot", std::string(why.message()),
                    "a --state_dir that the server can write"});
}

// Logs why something can't be restored. A lack of memory concerns only the
// caller, which may try again and again.
void LogUnrestored(const std::string& what, const absl::Status& why) {
  if (absl::IsResourceExhausted(why)) return;
  spdlog::error("{} can't be restored: {}", what, std::string(why.message()));
}

}  // namespace

Snapshotter::Snapshotter(SessionTable* sessions, SnapshotStore* store,
                         Options options)
    : sessions_(sessions),
      store_(store),
      options_(std::move(options)),
      pacing_(options_.interval),
      thread_(std::min(kLook, options_.interval), [this] {
        RemoveDue();
        WriteDue();
      }) {}

void Snapshotter::Load(const std::shared_ptr<KeptSession>& session) {
  options_.load(session->settings().client, [this, session] {
    // A session that has ended has already failed the calls that waited for
    // the load. The store would remember its folder for ever.
    if (!session->IsOpen(sessions_->now())) return;
    const KeptSession::Settings& settings = session->settings();
    std::vector<std::string> broken;
    absl::StatusOr<SessionCapture> content =
        LoadCapture(store_, HashOf(settings.id), options_.replies,
                    sessions_->memory().get(), &broken);
    for (const std::string& why : broken) {
      spdlog::error("session {}: a snapshot can't be used: {}", settings.handle,
                    why);
    }
    if (!content.ok()) {
      LogUnrestored(absl::StrCat("session ", settings.handle),
                    content.status());
      return session->FailToRestore(content.status());
    }
    spdlog::info("session {} restored after change {}", settings.handle,
                 content->state->number);
    int64_t& epoch = content->epochs.newest;
    epoch = std::max(epoch + 1, FirstEpoch(store_->fencing_number()));
    session->Restore(*content, sessions_->now());
  });
}

void Snapshotter::Forget(const std::shared_ptr<KeptSession>& session) {
  options_.load(session->settings().client, [this, session] {
    // A Load before this task needs what the store remembers. The store has
    // forgotten a session that has ended.
    if (!session->info().on_disk || !session->IsOpen(sessions_->now())) return;
    store_->FolderOf(HashOf(session->settings().id))->Forget();
  });
}

void Snapshotter::Save(const std::shared_ptr<KeptSession>& session, Done done) {
  thread_.Post(
      [this, session, done = std::move(done)] { done(Write(session.get())); },
      session->settings().client);
}

void Snapshotter::Keep(const std::shared_ptr<KeptSession>& session,
                       const std::string& name, Done done) {
  thread_.Post(
      [this, session, name, done = std::move(done)] {
        const absl::Status written = WriteOpen(session.get());
        done(written.ok() ? KeepNewest(session.get(), name) : written);
      },
      session->settings().client);
}

absl::Status Snapshotter::KeepNewest(KeptSession* session,
                                     const std::string& name) {
  NamedSnapshots before = session->info().snapshots;
  RETURN_IF_ERROR(session->AddSnapshot(name, session->durable_snapshot()));
  absl::Status kept =
      store_->FolderOf(HashOf(session->settings().id))->KeepNamed(name);
  const std::string& handle = session->settings().handle;
  if (kept.ok()) {
    unkept_.erase(handle);
    return kept;
  }
  session->SetSnapshots(std::move(before));
  if (unkept_.insert(handle).second) {
    spdlog::warn("session {}: the snapshot '{}' isn't kept: {}", handle, name,
                 std::string(kept.message()));
  }
  return CannotWrite(kept);
}

void Snapshotter::LoadNamed(const std::shared_ptr<KeptSession>& session,
                            const std::string& name, Loaded done) {
  options_.load(session->settings().client, [this, session, name,
                                             done = std::move(done)] {
    if (!session->IsOpen(sessions_->now())) return done(NoSuchSession());
    auto loaded = LoadNamedState(store_, HashOf(session->settings().id), name,
                                 sessions_->memory().get());
    if (absl::IsNotFound(loaded.status())) {
      return done(NotFound("name", absl::StrCat("'", name, "'"),
                           "a snapshot that SaveState has kept"));
    }
    if (!loaded.ok()) {
      LogUnrestored(absl::StrCat("session ", session->settings().handle,
                                 ": the snapshot '", name, "'"),
                    loaded.status());
    }
    done(std::move(loaded));
  });
}

void Snapshotter::Drop(const std::shared_ptr<KeptSession>& session,
                       const std::string& name, Done done) {
  thread_.Post(
      [this, session, name, done = std::move(done)] {
        // Changes that aren't on disk may be repeated, and restore the
        // snapshot.
        const absl::Status written = WriteOpen(session.get());
        if (!written.ok()) return done(written);
        const absl::Status dropped =
            store_->FolderOf(HashOf(session->settings().id))->DropNamed(name);
        if (!dropped.ok()) return done(CannotWrite(dropped));
        NamedSnapshots left = session->info().snapshots;
        left.erase(name);
        session->SetSnapshots(std::move(left));
        done(absl::OkStatus());
      },
      session->settings().client);
}

void Snapshotter::Remove(const std::string& client, const std::string& hash,
                         Done done) {
  thread_.Post(
      [this, hash, done = std::move(done)] {
        const absl::Status removed = RemoveNow(hash);
        done(removed.ok() ? removed : CannotWrite(removed));
      },
      client);
}

absl::Status Snapshotter::RemoveNow(const std::string& hash) {
  const std::string handle = hash.substr(0, kHandleDigits);
  absl::Status removed = store_->Remove(hash);
  pacing_.OnEnd(handle, removed.ok(), sessions_->now());
  unkept_.erase(handle);
  if (removed.ok()) {
    const bool had_failed = unremoved_.erase(hash) > 0;
    if (had_failed) spdlog::info("session {} is no longer on disk", handle);
  } else if (unremoved_.insert(hash).second) {
    spdlog::error("session {} stays on disk: {}", handle,
                  std::string(removed.message()));
  }
  return removed;
}

bool Snapshotter::SaveAll() {
  std::atomic<bool> all_ok = true;
  Mutex mutex;
  CondVar ended;
  const auto sessions = sessions_->DurableSessions();
  size_t left = sessions.size();
  for (const std::shared_ptr<KeptSession>& session : sessions) {
    Save(session, [&](const absl::Status& saved) {
      if (!saved.ok()) all_ok = false;
      MutexLock lock(&mutex);
      if (--left == 0) ended.NotifyAll();
    });
  }
  MutexLock lock(&mutex);
  while (left > 0) ended.Wait(&mutex);
  return all_ok;
}

Snapshotter::Counts Snapshotter::counts() const {
  MutexLock lock(&mutex_);
  return counts_;
}

void Snapshotter::RemoveDue() {
  for (const std::string& hash : std::set<std::string>(unremoved_)) {
    const bool is_due = pacing_.IsDue(hash.substr(0, kHandleDigits),
                                      absl::InfinitePast(), sessions_->now());
    if (is_due) RemoveNow(hash).IgnoreError();
  }
}

void Snapshotter::WriteDue() {
  struct Candidate {
    std::shared_ptr<KeptSession> session;
    bool has_failed;
    absl::Time changed_since;
  };
  std::vector<Candidate> candidates;
  for (std::shared_ptr<KeptSession>& session : sessions_->DurableSessions()) {
    const absl::Time since = session->changed_since();
    if (since == absl::InfiniteFuture()) continue;
    const bool has_failed = pacing_.HasFailed(session->settings().handle);
    candidates.push_back({std::move(session), has_failed, since});
  }
  // A session that can't be written doesn't keep the others waiting.
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& one, const Candidate& other) {
              return std::tie(one.has_failed, one.changed_since) <
                     std::tie(other.has_failed, other.changed_since);
            });
  for (const Candidate& candidate : candidates) {
    const absl::Time start = sessions_->now();
    if (!pacing_.IsDue(candidate.session->settings().handle,
                       candidate.changed_since, start)) {
      continue;
    }
    Write(candidate.session.get()).IgnoreError();
    pacing_.OnUnasked(start, sessions_->now());
    if (thread_.is_awaited()) return;
  }
}

absl::Status Snapshotter::Write(KeptSession* session) {
  const absl::Time start = sessions_->now();
  const std::optional<SessionCapture> capture = session->NewestCapture(start);
  if (!capture) return absl::OkStatus();
  int64_t bytes = 0;
  const absl::Status written = WriteCapture(*session, *capture, &bytes);
  const absl::Time end = sessions_->now();
  const std::string& handle = session->settings().handle;
  const bool has_failed_before = pacing_.HasFailed(handle);
  const bool failed_just_now = !pacing_.MayTry(handle, end);
  pacing_.OnEnd(handle, written.ok(), end);
  if (written.ok()) {
    session->OnDurable(*capture);
    spdlog::debug("session {}: change {} on disk after {}", handle,
                  capture->state->number, absl::FormatDuration(end - start));
    if (has_failed_before) spdlog::info("session {} is on disk again", handle);
  } else if (!failed_just_now) {
    // Clients may ask for a snapshot again and again.
    spdlog::warn("session {}: change {} isn't on disk: {}", handle,
                 capture->state->number, std::string(written.message()));
  }
  MutexLock lock(&mutex_);
  ++(written.ok() ? counts_.written : counts_.failed);
  counts_.time += end - start;
  counts_.bytes += bytes;
  return written.ok() ? written : CannotWrite(written);
}

absl::Status Snapshotter::WriteOpen(KeptSession* session) {
  RETURN_IF_ERROR(Write(session));
  // A session that has ended may not have a folder any more.
  if (session->IsOpen(sessions_->now())) return absl::OkStatus();
  return NoSuchSession();
}

absl::Status Snapshotter::WriteCapture(const KeptSession& session,
                                       const SessionCapture& capture,
                                       int64_t* bytes) {
  ASSIGN_OR_RETURN(CapturedImage captured,
                   Capture(session.settings(), capture, options_.facts,
                           options_.replies, sessions_->memory().get()));
  RETURN_IF_ERROR(store_->Write(captured.image));
  for (const ImageTensor& tensor : captured.image.tensors) {
    *bytes += std::ssize(tensor.data.bytes);
  }
  return absl::OkStatus();
}

}  // namespace convgrad
