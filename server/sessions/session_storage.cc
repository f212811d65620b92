// These functions of `SessionTable` deal with sessions that are on disk.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/sessions/session_table.h"

namespace convgrad {

absl::Status SessionTable::AddStored(const StoredSession& stored) {
  const KeptSession::Settings& settings = stored.settings;
  const SessionCaller client{settings.client, !settings.owner.empty(), false};
  RETURN_IF_ERROR(Check(client, settings));
  MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(const std::shared_ptr<KeptSession> session,
                   Add(stored.settings, /*is_new=*/false));
  session->StayOnDisk(stored.number, stored.epochs, stored.totals);
  // The client may have more than its limit, as with sessions.
  session->SetSnapshots(stored.snapshots);
  return absl::OkStatus();
}

void SessionTable::AddBroken(const std::string& hash, const absl::Status& why) {
  MutexLock lock(&mutex_);
  broken_[hash] = why;
}

absl::Status SessionTable::WhyMissing(const std::string& id) const {
  MutexLock lock(&mutex_);
  if (broken_.empty()) return NoSuchSession();
  const auto found = broken_.find(HashOf(id));
  return found == broken_.end() ? NoSuchSession() : found->second;
}

void SessionTable::AwaitContent(const std::shared_ptr<KeptSession>& session,
                                KeptSession::Ready ready) {
  if (!session->settings().durable) return ready(absl::OkStatus());
  if (session->AwaitContent(std::move(ready))) archive_->Load(session);
}

std::string SessionTable::TakeBroken(const std::string& handle) {
  if (handle.size() != kHandleDigits) return "";
  const auto found = broken_.lower_bound(handle);
  if (found == broken_.end() || found->first.rfind(handle, 0) != 0) return "";
  std::string hash = found->first;
  broken_.erase(found);
  return hash;
}

std::vector<std::shared_ptr<KeptSession>> SessionTable::DurableSessions()
    const {
  std::vector<std::shared_ptr<KeptSession>> sessions = All();
  std::erase_if(sessions, [](const auto& session) {
    return !session->settings().durable;
  });
  return sessions;
}

}  // namespace convgrad
