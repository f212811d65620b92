#include "server/sessions/session_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

constexpr size_t kMaxReaders = 64;
// Bytes of the budget that a session takes beside its names: its objects and
// table entries.
constexpr int64_t kSessionBytes = 4096;

// Returns the bytes of a session's names.
int64_t NameBytes(const SessionTable::OpenRequest& request) {
  // The session, a key and the value of another key each hold the name as a
  // string.
  int64_t bytes = 3 * static_cast<int64_t>(request.name.size());
  for (const std::string& reader : request.readers) {
    bytes += static_cast<int64_t>(reader.size() + sizeof(reader));
  }
  return bytes;
}

// The key contains the client's size, so that keys of different clients differ.
std::string KeyOf(const std::string& client, const std::string& rest) {
  return absl::StrCat(client.size(), ":", client, rest);
}

}  // namespace

SessionTable::SessionTable(std::shared_ptr<KeptMemory> memory,
                           ClientQuotas::Limits limits, SessionUse::Clock clock)
    : memory_(std::move(memory)), quotas_(limits), clock_(std::move(clock)) {}

SessionTable::~SessionTable() = default;

absl::Status SessionTable::Check(const SessionCaller& caller,
                                 const OpenRequest& request) const {
  if (request.open_id.size() != kSessionIdBytes) {
    return InvalidField(Reason::kOutOfRange, "open_id",
                        absl::StrCat(request.open_id.size(), " bytes"),
                        absl::StrCat(kSessionIdBytes, " random bytes"));
  }
  if (!request.name.empty()) {
    RETURN_IF_ERROR(CheckName(request.name, "name"));
  }
  if (request.readers.size() > kMaxReaders) {
    return InvalidField(Reason::kOutOfRange, "readers",
                        absl::StrCat(request.readers.size(), " readers"),
                        absl::StrCat("at most ", kMaxReaders));
  }
  for (const std::string& reader : request.readers) {
    RETURN_IF_ERROR(CheckName(reader, "readers"));
  }
  if (!request.readers.empty() && !caller.has_identity) {
    return InvalidField(Reason::kForbidden, "readers",
                        "some, from a client without an identity",
                        "none: this server knows no names");
  }
  if (request.lease < kMinLease || request.lease > kMaxLease) {
    return InvalidField(Reason::kOutOfRange, "lease_seconds",
                        absl::StrCat(absl::ToDoubleSeconds(request.lease)),
                        "1 to 86400");
  }
  if (request.quota_bytes >= 0) return absl::OkStatus();
  return InvalidField(Reason::kOutOfRange, "quota_bytes",
                      absl::StrCat(request.quota_bytes), "at least 0");
}

absl::StatusOr<SessionUse> SessionTable::Open(const SessionCaller& caller,
                                              const OpenRequest& request) {
  RETURN_IF_ERROR(Check(caller, request));
  const std::string open_key = KeyOf(caller.client, request.open_id);
  const std::string name_key = request.name.empty() || !caller.has_identity
                                   ? ""
                                   : KeyOf(caller.client, request.name);
  MutexLock lock(&mutex_);
  if (const auto opened = by_open_.find(open_key); opened != by_open_.end()) {
    const std::shared_ptr<KeptSession>& session =
        entries_.find(opened->second)->second.session;
    if (session->Enter(clock_())) return SessionUse(session, &clock_);
    return NoSuchSession();
  }
  if (!name_key.empty() && by_name_.contains(name_key)) {
    return MakeError(absl::StatusCode::kAlreadyExists,
                     {Reason::kDuplicate, "name",
                      absl::StrCat("'", request.name, "', an open session"),
                      "another name, or ResumeSession"});
  }
  ASSIGN_OR_RETURN(
      Reservation reservation,
      memory_->memory()->budget.TryReserve(kSessionBytes + NameBytes(request)));
  RETURN_IF_ERROR(quotas_.AddSession(caller.client));
  const int64_t quota =
      request.quota_bytes == 0
          ? memory_->max_bytes()
          : std::min(request.quota_bytes, memory_->max_bytes());
  const std::string id = NewSessionId();
  const std::string handle = HandleOf(id);
  auto session = std::make_shared<KeptSession>(
      KeptSession::Settings{id, handle, request.name,
                            request.name.empty() ? handle : request.name,
                            caller.client,
                            caller.has_identity ? caller.client : "",
                            request.readers, request.lease, quota},
      &quotas_, memory_, clock_());
  entries_[id] = {session, open_key, name_key, std::move(reservation)};
  by_open_[open_key] = id;
  if (!name_key.empty()) by_name_[name_key] = id;
  session->Enter(clock_());
  return SessionUse(std::move(session), &clock_);
}

std::shared_ptr<KeptSession> SessionTable::Lookup(const std::string& id) const {
  MutexLock lock(&mutex_);
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : found->second.session;
}

absl::StatusOr<SessionUse> SessionTable::Enter(
    std::shared_ptr<KeptSession> session, bool renews) {
  const bool is_open =
      session != nullptr &&
      (renews ? session->Enter(clock_()) : session->IsOpen(clock_()));
  if (!is_open) return NoSuchSession();
  return SessionUse(std::move(session), renews ? &clock_ : nullptr);
}

absl::StatusOr<SessionUse> SessionTable::Find(const SessionCaller& caller,
                                              const std::string& id,
                                              bool renews) {
  std::shared_ptr<KeptSession> session = Lookup(id);
  if (session == nullptr) return NoSuchSession();
  if (!IsOwner(caller, *session)) {
    // A reader knows that the session exists, so kNotFound would tell it
    // wrongly that the session has ended.
    return IsReader(caller, *session) ? OwnersAlone() : NoSuchSession();
  }
  return Enter(std::move(session), renews);
}

absl::StatusOr<SessionUse> SessionTable::FindToRead(const SessionCaller& caller,
                                                    const std::string& id,
                                                    bool renews) {
  std::shared_ptr<KeptSession> session = Lookup(id);
  if (session == nullptr) return NoSuchSession();
  const bool is_owner = IsOwner(caller, *session);
  if (!is_owner && !IsReader(caller, *session)) return NoSuchSession();
  return Enter(std::move(session), renews && is_owner);
}

absl::StatusOr<SessionUse> SessionTable::FindByName(const SessionCaller& caller,
                                                    const std::string& name) {
  std::string id;
  if (caller.has_identity) {
    MutexLock lock(&mutex_);
    const auto found = by_name_.find(KeyOf(caller.client, name));
    if (found != by_name_.end()) id = found->second;
  }
  return Enter(Lookup(id), /*renews=*/true);
}

absl::Status SessionTable::Close(const SessionCaller& caller,
                                 const std::string& id) {
  {
    std::shared_ptr<KeptSession> session = Lookup(id);
    const bool may =
        session != nullptr && (caller.is_admin || IsOwner(caller, *session));
    if (!may) return NoSuchSession();
    ASSIGN_OR_RETURN(const SessionUse use,
                     Enter(std::move(session), /*renews=*/true));
    use->End(NoSuchSession());
  }
  Remove(id);
  return absl::OkStatus();
}

absl::Status SessionTable::CloseByHandle(const SessionCaller& caller,
                                         const std::string& handle) {
  std::string id;
  {
    MutexLock lock(&mutex_);
    for (const auto& [other, entry] : entries_) {
      const KeptSession::Settings& settings = entry.session->settings();
      // For a session without an owner, only the id gives the right to end it.
      const bool may = caller.is_admin ||
                       (caller.has_identity && settings.owner == caller.client);
      if (may && settings.handle == handle) id = other;
    }
  }
  return Close(caller, id);
}

std::vector<SessionInfo> SessionTable::List(const SessionCaller& caller,
                                            bool everybody) const {
  std::vector<std::shared_ptr<KeptSession>> sessions;
  {
    MutexLock lock(&mutex_);
    for (const auto& [id, entry] : entries_) {
      if (everybody || entry.session->settings().client == caller.client) {
        sessions.push_back(entry.session);
      }
    }
  }
  std::vector<SessionInfo> infos;
  infos.reserve(sessions.size());
  for (const auto& session : sessions) infos.push_back(session->info());
  return infos;
}

void SessionTable::Remove(const std::string& id) {
  Entry removed;
  {
    MutexLock lock(&mutex_);
    const auto found = entries_.find(id);
    if (found == entries_.end()) return;
    removed = std::move(found->second);
    entries_.erase(found);
    by_open_.erase(removed.open_key);
    if (!removed.name_key.empty()) by_name_.erase(removed.name_key);
  }
  quotas_.RemoveSession(removed.session->settings().client);
}

void SessionTable::Expire() {
  std::vector<std::shared_ptr<KeptSession>> sessions;
  {
    MutexLock lock(&mutex_);
    for (const auto& [id, entry] : entries_) sessions.push_back(entry.session);
  }
  const absl::Time now = clock_();
  for (const auto& session : sessions) {
    session->Expire(now);
    if (!session->EndIfExpired(now)) continue;
    Remove(session->settings().id);
    MutexLock lock(&mutex_);
    ++expired_;
  }
  digests_.Sweep();
}

void SessionTable::EndAll(const absl::Status& why) {
  std::vector<std::shared_ptr<KeptSession>> sessions;
  {
    MutexLock lock(&mutex_);
    for (const auto& [id, entry] : entries_) sessions.push_back(entry.session);
  }
  for (const auto& session : sessions) {
    session->End(why);
    Remove(session->settings().id);
  }
}

int64_t SessionTable::sessions() const {
  MutexLock lock(&mutex_);
  return static_cast<int64_t>(entries_.size());
}

SessionTable::Contents SessionTable::contents() const {
  MutexLock lock(&mutex_);
  Contents all;
  for (const auto& [id, entry] : entries_) {
    const std::shared_ptr<const KeptState> state = entry.session->state();
    all.tensors += static_cast<int64_t>(state->tensors.size());
    all.programs += static_cast<int64_t>(state->programs.size());
    all.tapes += static_cast<int64_t>(state->tapes.size());
    for (const auto& [name, tape] : state->tapes) {
      all.tape_bytes += tape->bytes->size();
    }
  }
  return all;
}

int64_t SessionTable::expired() const {
  MutexLock lock(&mutex_);
  return expired_;
}

}  // namespace convgrad
