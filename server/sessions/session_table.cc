#include "server/sessions/session_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

constexpr size_t kMaxReaders = 64;

// Returns kInvalidArgument if `repeat` isn't the request that `opened` the
// session. Ignores the quota, whose default changes with the server's memory.
// Disks keep leases in nanoseconds.
absl::Status CheckRepeat(const SessionRequest& opened,
                         const SessionRequest& repeat) {
  const bool is_same = opened.name == repeat.name &&
                       opened.readers == repeat.readers &&
                       absl::ToInt64Nanoseconds(opened.lease) ==
                           absl::ToInt64Nanoseconds(repeat.lease) &&
                       opened.durable == repeat.durable;
  if (is_same) return absl::OkStatus();
  return InvalidField(Reason::kDuplicate, "open_id",
                      "that of a session with another name, lease, readers or "
                      "durability",
                      "16 random bytes of its own");
}

}  // namespace

SessionTable::SessionTable(std::shared_ptr<KeptMemory> memory,
                           ClientQuotas::Limits limits, SessionUse::Clock clock)
    : memory_(std::move(memory)), quotas_(limits), clock_(std::move(clock)) {}

absl::Status SessionTable::Check(const SessionCaller& caller,
                                 const SessionRequest& request) const {
  if (request.open_id.size() != kSessionIdBytes) {
    return OutOfRange("open_id", absl::StrCat(request.open_id.size(), " bytes"),
                      absl::StrCat(kSessionIdBytes, " random bytes"));
  }
  if (!request.name.empty()) {
    RETURN_IF_ERROR(CheckName(request.name, "name"));
  }
  if (request.readers.size() > kMaxReaders) {
    return OutOfRange("readers",
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
    return OutOfRange("lease_seconds", absl::ToDoubleSeconds(request.lease),
                      "1 to 86400");
  }
  if (request.durable && archive_ == nullptr) {
    return FailedPrecondition(Reason::kUnsupported, "durable", "true",
                              "false: this server has no --state_dir");
  }
  if (request.quota_bytes >= 0) return absl::OkStatus();
  return OutOfRange("quota_bytes", request.quota_bytes, "at least 0");
}

absl::StatusOr<SessionUse> SessionTable::Open(const SessionCaller& caller,
                                              const SessionRequest& request) {
  RETURN_IF_ERROR(Check(caller, request));
  KeptSession::Settings settings{request};
  settings.id = NewSessionId();
  settings.client = caller.client;
  settings.owner = caller.has_identity ? caller.client : "";
  settings.quota_bytes =
      request.quota_bytes == 0
          ? memory_->max_bytes()
          : std::min(request.quota_bytes, memory_->max_bytes());
  MutexLock lock(&mutex_);
  if (const auto opened = by_open_.find(OpenKeyOf(settings));
      opened != by_open_.end()) {
    const std::shared_ptr<KeptSession>& session =
        entries_.find(opened->second)->second.session;
    RETURN_IF_ERROR(CheckRepeat(session->settings(), settings));
    if (session->Enter(clock_())) return SessionUse(session, &clock_);
    return NoSuchSession();
  }
  ASSIGN_OR_RETURN(std::shared_ptr<KeptSession> session,
                   Add(std::move(settings), /*is_new=*/true));
  session->Enter(clock_());
  return SessionUse(std::move(session), &clock_);
}

absl::StatusOr<std::shared_ptr<KeptSession>> SessionTable::Add(
    KeptSession::Settings settings, bool is_new) {
  std::string name_key = NameKeyOf(settings);
  if (is_new && !name_key.empty() && by_name_.contains(name_key)) {
    return MakeError(absl::StatusCode::kAlreadyExists,
                     {Reason::kDuplicate, "name",
                      absl::StrCat("'", settings.name, "', an open session"),
                      "another name, or ResumeSession"});
  }
  ASSIGN_OR_RETURN(
      Reservation reservation,
      memory_->memory()->budget.TryReserve(BookkeepingBytes(settings)));
  RETURN_IF_ERROR(quotas_.AddSession(settings.client, is_new));
  settings.handle = HandleOf(settings.id);
  settings.label = settings.name.empty() ? settings.handle : settings.name;
  const std::string id = settings.id;
  const std::string open_key = OpenKeyOf(settings);
  auto session = std::make_shared<KeptSession>(std::move(settings), &quotas_,
                                               memory_, clock_());
  if (!name_key.empty() && !by_name_.emplace(name_key, id).second) {
    name_key.clear();
  }
  by_open_[open_key] = id;
  entries_[id] = {session, open_key, name_key, std::move(reservation)};
  return session;
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
                                              Right right, bool renews) {
  std::shared_ptr<KeptSession> session = Lookup(id);
  if (session == nullptr) return WhyMissing(id);
  const bool is_owner = IsOwner(caller, *session);
  if (!is_owner && !IsReader(caller, *session)) return NoSuchSession();
  // A reader knows that the session exists, so kNotFound would tell it wrongly
  // that the session has ended.
  if (!is_owner && right == Right::kAll) return OwnersAlone();
  return Enter(std::move(session), renews && is_owner);
}

absl::StatusOr<SessionUse> SessionTable::FindByName(const SessionCaller& caller,
                                                    const std::string& name) {
  if (!caller.has_identity) {
    return InvalidField(
        Reason::kForbidden, "name",
        absl::StrCat("'", name, "', from a client without an identity"),
        "a session_id: only clients with a token or certificate resume by "
        "name");
  }
  std::string id;
  {
    MutexLock lock(&mutex_);
    KeptSession::Settings wanted;
    wanted.name = name;
    wanted.client = caller.client;
    wanted.owner = caller.client;
    const auto found = by_name_.find(NameKeyOf(wanted));
    if (found != by_name_.end()) id = found->second;
  }
  return Enter(Lookup(id), /*renews=*/true);
}

void SessionTable::Close(const SessionCaller& caller, const std::string& id,
                         int64_t held, const Closed& closed) {
  const std::shared_ptr<KeptSession> session = Lookup(id);
  if (session == nullptr) return closed(WhyMissing(id));
  const bool may = caller.is_admin || IsOwner(caller, *session);
  if (!may) return closed(NoSuchSession());
  {
    const absl::StatusOr<SessionUse> use = Enter(session, /*renews=*/true);
    if (!use.ok()) return closed(use.status());
    const absl::Status ended = session->EndHeld(held, NoSuchSession());
    if (!ended.ok()) return closed(ended);
  }
  Remove(id);
  if (!session->settings().durable) return closed(absl::OkStatus());
  archive_->Remove(session->settings().client, HashOf(id), closed);
}

void SessionTable::CloseByHandle(const SessionCaller& caller,
                                 const std::string& handle, int64_t held,
                                 const Closed& closed) {
  std::string id;
  std::string broken;
  {
    MutexLock lock(&mutex_);
    if (caller.is_admin) broken = TakeBroken(handle);
    for (const auto& [other, entry] : entries_) {
      const KeptSession::Settings& settings = entry.session->settings();
      // For a session without an owner, only the id gives the right to end it.
      const bool may = caller.is_admin ||
                       (caller.has_identity && settings.owner == caller.client);
      if (may && settings.handle == handle) id = other;
    }
  }
  if (!broken.empty()) return archive_->Remove(/*client=*/"", broken, closed);
  Close(caller, id, held, closed);
}

std::vector<std::shared_ptr<KeptSession>> SessionTable::All() const {
  std::vector<std::shared_ptr<KeptSession>> sessions;
  MutexLock lock(&mutex_);
  for (const auto& [id, entry] : entries_) sessions.push_back(entry.session);
  return sessions;
}

std::vector<SessionInfo> SessionTable::List(const SessionCaller& caller,
                                            bool everybody) const {
  std::vector<SessionInfo> infos;
  for (const auto& session : All()) {
    if (everybody || session->settings().client == caller.client) {
      infos.push_back(session->info());
    }
  }
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
  const absl::Time now = clock_();
  for (const auto& session : All()) {
    session->Expire(now);
    const bool has_ended = session->EndIfExpired(now);
    if (has_ended) Remove(session->settings().id);
    const bool rests = !has_ended && session->RestIfExpired(now);
    if (rests) archive_->Forget(session);
    if (has_ended || rests) ++expired_;
  }
  digests_.Sweep();
}

void SessionTable::EndAll(const absl::Status& why) {
  for (const auto& session : All()) {
    session->End(why);
    Remove(session->settings().id);
  }
}

int64_t SessionTable::sessions() const {
  MutexLock lock(&mutex_);
  return std::ssize(entries_);
}

SessionTable::Contents SessionTable::contents() const {
  Contents all;
  for (const auto& session : All()) {
    const std::shared_ptr<const KeptState> state = session->state();
    all.tensors += std::ssize(state->tensors);
    all.programs += std::ssize(state->programs);
    all.tapes += std::ssize(state->tapes);
    for (const auto& [name, tape] : state->tapes) {
      all.tape_bytes += tape->bytes->size();
    }
  }
  return all;
}

}  // namespace convgrad
