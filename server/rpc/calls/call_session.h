// `CallSession` is the session as one call sees it: the session's state,
// whether the call changes it, the call's turn, its reads and its writes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "convgrad/v1/tensor.pb.h"
#include "server/memory/tensor_place.h"
#include "server/rpc/transport/gate.h"
#include "server/sessions/session_table.h"

namespace convgrad {

// Returns the caller in the form that sessions use.
inline SessionCaller CallerOf(const CallPermit& permit) {
  return {permit.client(), permit.has_identity(),
          permit.role() >= ClientRole::kAdmin};
}

// Returns kInvalidArgument unless `id`, the value of `field`, has the size of a
// call's id.
absl::Status CheckCallId(absl::string_view field, absl::string_view id);

// A call without a session has an empty one (in_session() is false).
//
// Owned by its call, whose actions follow one another on any thread. Only
// Withdraw may be called from another thread at any time.
class CallSession {
 public:
  // Returns the value of the metadata `key` of a call, "" if there is none.
  using Metadata = std::function<absl::string_view(absl::string_view key)>;

  // Finds the session that the metadata names. Does nothing if it names none.
  // `permit` is the call's. `only_computes` admits the session's readers as
  // well. `table` outlives this.
  // Errors: kInvalidArgument; kNotFound.
  absl::Status Enter(SessionTable* table, const Metadata& metadata,
                     const CallPermit& permit, bool only_computes);

  bool in_session() const { return static_cast<bool>(use_); }
  bool is_change() const { return change_.has_value(); }

  // Waits until the call may go on: a change for its turn, a read for the
  // number that it asks for. Calls `decided` once, on any thread, possibly
  // before this returns (see ChangeOrder::Caller, for `admit_early` as well).
  // Requires: in_session(), and the session's content is in memory.
  void Await(absl::Time deadline, ChangeOrder::Decided decided,
             std::function<void()> admit_early);
  // Ends the wait. Returns false if the call doesn't wait; otherwise `decided`
  // is never called.
  bool Withdraw();

  // The state that the call reads. Requires: the decision was to run.
  const KeptState& state() const { return *state_; }
  // Returns the tensor `name`. `path` names the field that asks for it.
  // Errors: kNotFound.
  absl::StatusOr<KeptTensor> Find(absl::string_view name, int64_t version,
                                  const std::string& path) const;
  // Checks that the call has a session, and that the field `path` names this
  // session or none.
  // Errors: kInvalidArgument.
  absl::Status CheckId(const std::string& session_id,
                       const std::string& path) const;

  // Adds the new version of the tensor `name` to the writes, with memory of its
  // own, and returns its place. `paid` is as in KeptMemory::Take. Requires:
  // is_change().
  // Errors: kResourceExhausted.
  absl::StatusOr<TensorPlace> Write(const std::string& name,
                                    const TensorDescriptor& descriptor,
                                    Reservation* paid);
  // As Write, for a sum: the result is the old version, if there is one, plus
  // the tensor that the operation computes. `path` names the tensor in errors.
  // Requires: f32.
  // Errors: those of Write; kInvalidArgument if the old version has other dims
  // or another layout.
  absl::StatusOr<TensorPlace> Add(const std::string& name,
                                  const TensorDescriptor& descriptor,
                                  const std::string& path, Reservation* paid);
  // The writes that take effect with Commit. Requires: is_change().
  KeptWrites* writes() { return &writes_; }
  // Returns the message that tells the client where the call keeps a tensor.
  v1::Tensor Describe(const TensorDescriptor& descriptor,
                      const std::string& name) const;
  // As KeptSession::Promise, for the writes so far. `reply` is the size of the
  // answer; the default is that of an answer without tensors.
  absl::Status Promise(const ReplySize& reply = {}) {
    return use_->Promise(writes_, reply);
  }
  // Returns kInvalidArgument unless the call is a change; `path` names the
  // field that needs one.
  absl::Status CheckChange(const std::string& path) const;

  // Returns kInvalidArgument if `text`, the field `path`, is too long to be a
  // trainer's state, or if it isn't empty and the call isn't a change.
  // Otherwise the change keeps it, if it isn't empty.
  absl::Status KeepTrainerState(const std::string& text,
                                const std::string& path);

  SessionTable* table() const { return table_; }
  const KeptSession::Settings& settings() const { return use_->settings(); }
  const std::shared_ptr<KeptSession>& session() const { return use_.session(); }

  // If the call is a change, lets the session's next one be admitted before its
  // turn. Requires: this change waits for no more memory.
  void AdmitNextEarly() {
    if (is_change()) use_->AdmitNextEarly(*change_);
  }
  // Makes the writes take effect, with `reply` as the answer of this change.
  // Errors: kNotFound if the session has ended meanwhile.
  absl::Status Commit(ChangeOrder::Reply reply);
  // Ends the call's use of the session. A change that isn't committed has
  // failed with `*status`; another error replaces it if the session was taken
  // over meanwhile. The session doesn't expire before this object is destroyed.
  // Returns the number of the last committed change that the call knows of, or
  // nothing if the call is BUSY, because that decides nothing.
  std::optional<int64_t> End(absl::Status* status);

 private:
  SessionTable* table_ = nullptr;
  SessionUse use_;
  std::optional<ChangeId> change_;
  int64_t after_ = 0;
  // 0 while the call doesn't wait.
  std::atomic<uint64_t> waiter_{0};
  bool runs_ = false;
  // The number of this change; 0 until it is committed.
  int64_t number_ = 0;
  std::shared_ptr<const KeptState> state_;
  KeptWrites writes_;
};

}  // namespace convgrad
