// A call's part in a session: which session, whether the call changes it, its
// turn, and what it sees and writes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "convgrad/v1/tensor.pb.h"
#include "server/rpc/transport/gate.h"
#include "server/sessions/session_table.h"

namespace convgrad {

// Returns who calls, as sessions know them.
inline SessionCaller CallerOf(const Visit& visit) {
  return {visit.client(), visit.has_identity(), visit.role() >= Role::kAdmin};
}

// Used by one step of a call after the other; only Withdraw may come at any
// time beside them.
class SessionPart {
 public:
  // Returns what a call's metadata says under a key, "" if nothing.
  using Metadata = std::function<absl::string_view(absl::string_view key)>;

  // Returns whether the call with this metadata is a change of a session.
  static bool IsChange(const Metadata& metadata);

  // Finds the session that the metadata names; without a name nothing happens.
  // `visit` is the call's. A call that `only_computes` is for the session's
  // readers, too. `table` outlives this. Errors: kInvalidArgument; kNotFound.
  absl::Status Enter(SessionTable* table, const Metadata& metadata,
                     const Visit& visit, bool only_computes);

  bool in_session() const { return static_cast<bool>(use_); }
  bool is_change() const { return change_.has_value(); }

  // Waits until the call may go on: a change for its turn, a read for the
  // number that it asks for. `decided` tells, on whatever thread, maybe before
  // this returns; see ChangeOrder::Caller, for `prepare`, too. Requires:
  // in_session().
  void Await(absl::Time deadline, ChangeOrder::Decided decided,
             std::function<void()> prepare);
  // Returns whether the call waited; it is never told then.
  bool Withdraw();

  // What the call sees. Requires: Await was told that it runs.
  const KeptState& state() const { return *state_; }
  // Returns the tensor `name`. `path` names the field that asks for it.
  // Errors: kNotFound.
  absl::StatusOr<KeptTensor> Find(absl::string_view name, int64_t version,
                                  const std::string& path) const;
  // Checks that the call has a session, and that the field `path` names that
  // one or none. Errors: kInvalidArgument.
  absl::Status CheckId(const std::string& session_id,
                       const std::string& path) const;

  // Returns memory for a tensor that the call will write; `paid` as in
  // KeptMemory::Take. Requires: is_change().
  absl::StatusOr<std::shared_ptr<KeptBytes>> Take(
      const TensorDescriptor& descriptor, Reservation* paid);
  // What the call will write. Requires: is_change().
  KeptWrites* writes() { return &writes_; }
  // Returns the message that says where a tensor that the call writes is kept.
  v1::Tensor Describe(const TensorDescriptor& descriptor,
                      const std::string& name) const;
  // As KeptSession::Promise, for the writes so far. `reply` is what the answer
  // will take; the default is that of one without tensors.
  absl::Status Promise(const ReplySize& reply = {}) {
    return use_->Promise(writes_, reply);
  }
  // Returns an error unless the call is a change; `path` names what needs one.
  absl::Status CheckChange(const std::string& path) const;

  SessionTable* table() const { return table_; }
  const KeptSession::Settings& settings() const { return use_->settings(); }

  // Has the session's next change prepare itself. To be called once this one
  // won't wait for memory any more. Requires: is_change().
  void LetNextPrepare() { use_->LetNextPrepare(*change_); }
  // Makes the writes take effect, with `reply` as the answer of this change.
  // Errors: kNotFound if the session has ended meanwhile.
  absl::Status Commit(ChangeOrder::Reply reply);
  // Ends the part: a change that wasn't committed has failed with `*status`,
  // which becomes another one if the session was taken over meanwhile. The
  // session doesn't expire before this is destroyed.
  // Returns the number of the last committed change that the call knows of;
  // none if the call is BUSY, which decides nothing.
  std::optional<int64_t> End(absl::Status* status);

 private:
  absl::Status ReadChange(const Metadata& metadata);

  SessionTable* table_ = nullptr;
  SessionUse use_;
  std::optional<ChangeId> change_;
  int64_t after_ = 0;
  // 0 while the call isn't among those who wait.
  std::atomic<uint64_t> waiter_{0};
  bool runs_ = false;
  // Of this change, once it is committed.
  int64_t number_ = 0;
  std::shared_ptr<const KeptState> state_;
  KeptWrites writes_;
};

}  // namespace convgrad
