// `Call` is one RPC of the server, from its arrival to its end. It waits for
// its turn in a session and for memory, measures each stage, and ends exactly
// once.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/support/byte_buffer.h"
#include "proto/codec/payload_message.h"
#include "server/rpc/calls/call_services.h"
#include "server/rpc/calls/call_session.h"
#include "server/rpc/calls/lifecycle.h"
#include "server/rpc/calls/method.h"

namespace convgrad {

// CreateReactor makes a call, and the call deletes itself in OnDone. gRPC calls
// OnDone only after End. A call runs End only when neither the budget, the
// scheduler nor the ClientWatch can call back, so that nothing uses a deleted
// call.
//
// gRPC, the budget and the workers call its virtual functions on any thread,
// one after the other. Only OnCancel may come at any time beside them.
class Call : public grpc::ServerGenericBidiReactor {
 public:
  // `method` and `services` outlive the call.
  Call(const Method& method, const CallServices& services,
       grpc::GenericCallbackServerContext* context);

  // Starts the call if the server takes calls and the client may make it;
  // otherwise ends it. CreateReactor calls it once.
  void Begin();

  // Tells ThreadSanitizer of the order that gRPC's queues make (HandedOver). A
  // call runs it before it leaves a thread and when it continues on another
  // one. The server runs it once when it is complete.
  static void HandOver();

 protected:
  // Starts the work of the call. Must lead to exactly one End.
  virtual void Start() = 0;

  // Refuses the call with `status` when its turn comes, because the refusal of
  // a change is its failure and has to keep the order. Call it before
  // AwaitTurn.
  void RefuseInTurn(absl::Status status) { refusal_ = std::move(status); }

  ~Call() override;

  // Enters the session of a call that has one, checks its method's SessionRule,
  // and waits for its turn. OnTurn reports how the wait ended, possibly before
  // this returns. If the call `may_be_early`, OnEarlyAdmission may come before
  // its turn. Call this once, before the call asks for memory.
  void AwaitTurn(bool may_be_early);

  // Reports how the wait of AwaitTurn ended. The call continues if `decision`
  // runs; otherwise it must call EndAs.
  virtual void OnTurn(const ChangeOrder::Decision& /*decision*/) {}
  // Early admission: the call may ask for memory and read its message before
  // its turn. OnTurn may be called meanwhile, or may have been called.
  virtual void OnEarlyAdmission() {}
  // Ends the call as `decision` says: as the one that it repeats, or refused.
  // Requires: !decision.runs().
  void EndAs(const ChangeOrder::Decision& decision);

  // Waits for a session's disk, or for its running change: calls `start`, which
  // must lead to one call of its argument, on any thread, and then `ended` with
  // the outcome.
  // If the client leaves or the deadline is over first, `ended` gets that
  // status, and the outcome has no effect. `ended` may be called before this
  // returns. A call waits for one thing at a time. If the client leaves,
  // another thread may run `ended` while `start` runs, so `start` mustn't use
  // what End changes, such as permit().
  using SessionOutcome = std::function<void(const absl::Status& outcome)>;
  void AwaitSession(const std::function<void(SessionOutcome)>& start,
                    SessionOutcome ended);

  // Waits for `bytes` of the budget, which replace the call's reservation.
  // OnMemory tells how the wait ended, possibly before this returns.
  void AwaitMemory(int64_t bytes);
  // Ends the wait for memory with OnMemory. Returns false if the call doesn't
  // wait.
  bool CancelWait();

  // Returns a function that reserves the memory to parse a message's head, in
  // addition to the call's reservation. A call without a reservation parses
  // small messages only, and reserves nothing. Errors of the function: those of
  // Reservation::TryGrow.
  AdmitHead AdmitsHead();

  // The wait for memory has ended. OK: `reservation()` has the bytes. Otherwise
  // the call must still run End.
  virtual void OnMemory(const absl::Status& /*status*/) {}

  // The client has left or the deadline is over. The call must still run End.
  virtual void OnGone() {}

  // Frees all memory and completes `sample()`. End calls it once.
  virtual void Settle(const absl::Status& /*status*/) {}

  // The client was too slow for AwaitClient. The call must still run End.
  virtual void OnSlowClient() {}

  // The sample that the observer gets; null if the call has no operation.
  OpSample* sample() { return sample_.operation.empty() ? nullptr : &sample_; }

  // Ends the call, the only way to do so: reports it and gives gRPC the status,
  // and `response` if that is OK. The call may be deleted when this returns.
  void End(absl::Status status, grpc::ByteBuffer* response = nullptr);

  // Ends the call with `response`, or with its error. Commits a change of a
  // session, unless the client has gone or the deadline is over.
  void Answer(absl::StatusOr<grpc::ByteBuffer> response);

  // Makes `thread` run `work` and then `next`. Ends the call with the error of
  // `work`, or without `work` if the client has gone. Call it last: the call
  // may be deleted when this returns.
  void ContinueOn(const ClientExecutor& thread,
                  std::function<absl::Status()> work,
                  std::function<void()> next);

  // As ContinueOn, for `work` that copies or hashes `bytes` bytes that the
  // client has put. A copying thread runs it, unless the bytes are so few that
  // the change of threads would take longer.
  void Copy(int64_t bytes, std::function<absl::Status()> work,
            std::function<void()> next);

  // Calls `start`, which starts a read or write at gRPC, and gives the client
  // time until `until`, or until the deadline if that is earlier. Then another
  // thread calls OnSlowClient. Call it last: the call may be deleted when this
  // returns.
  void AwaitClient(absl::Time until, const std::function<void()>& start);
  // Call it when the read or write has ended; no message is expected then.
  // Returns false if AwaitClient's wait is over. Unless it was stopped before,
  // OnSlowClient has the call, and the caller must not use it.
  bool StopAwaitingClient();

  // Allows the call's connection to send a message of up to `bytes`. If the
  // connection sends more than all of its calls allow, gRPC cancels the call.
  // Call it before the message is read.
  void ExpectMessage(int64_t bytes);

  // Makes gRPC cancel the call if the client doesn't take `bytes` in time. A
  // later call replaces an earlier one.
  void WatchAnswer(int64_t bytes);

  // Returns the value of the client's metadata `key`, "" if there is none.
  absl::string_view Metadata(absl::string_view key) const;

  // Returns the status of a call whose client has left or whose deadline is
  // over.
  absl::Status WhyGone() const;
  // Returns whether a read failed because the call did, not because the client
  // has no more to send. Requires: a read failed.
  bool FailedToRead() const;
  // Makes gRPC cancel the RPC and drop the messages that it hasn't sent.
  void BreakOff() { context_->TryCancel(); }

  // The priority that the client asks for in kPriorityKey.
  Priority priority() const { return priority_; }
  // The client's name in limits and queues.
  const std::string& client() const { return permit_.client(); }
  const CallPermit& permit() const { return permit_; }
  const Method& method() const { return method_; }
  const CallServices& services() const { return services_; }
  Reservation* reservation() { return &reservation_; }
  CallSession& session() { return session_; }
  absl::Time arrival() const { return arrival_; }
  absl::Time deadline() const { return deadline_; }
  // True when the client has gone. Other threads may read it.
  const std::shared_ptr<std::atomic<bool>>& cancelled() const {
    return cancelled_;
  }

  // The sample of the call's operation, if it has one. Plain data, so that it
  // may be destroyed after `active_`.
  OpSample sample_;

  void OnDone() override;
  // Ends the use of one holder, and deletes the call if it was the last one.
  void Release();

 private:
  friend class CallHold;

  // Waits for the turn. Requires: the content of the session is in memory.
  void AwaitTurnInSession(bool may_be_early);
  // Ends the wait for memory with the reservation or an error.
  void EndWait(absl::StatusOr<Reservation> granted);
  // End the wait for the turn, or that of AwaitSession. Return false if the
  // call doesn't wait so.
  bool CancelTurn();
  bool CancelSessionWait();
  void OnCancel() final;

  // The number of users of the call: gRPC until OnDone, and each CallHold.
  std::atomic<int> holders_{1};
  // Declared before the other members, so that it is destroyed last. The server
  // waits for that before it ends.
  Lifecycle::ActiveCall active_;
  const Method& method_;
  const CallServices& services_;
  grpc::GenericCallbackServerContext* const context_;
  const absl::Time arrival_;
  const ClientRole role_;
  const absl::Time deadline_;
  const std::shared_ptr<std::atomic<bool>> cancelled_;
  // The id in the budget's queue; 0 if the call doesn't wait there.
  std::atomic<uint64_t> waiter_id_{0};
  // Ids in the ClientWatch, of AwaitSession, AwaitClient and WatchAnswer; 0 if
  // none.
  std::atomic<uint64_t> session_wait_{0};
  std::atomic<uint64_t> client_wait_{0};
  uint64_t answer_wait_ = 0;
  // The callback of AwaitSession. The thread that removes `session_wait_` from
  // the ClientWatch calls it.
  SessionOutcome session_ended_;
  // Whether `start` of AwaitSession still has to call its argument.
  std::atomic<bool> is_held_ = false;
  // The id in the ArrivalWatch; 0 if none.
  std::atomic<uint64_t> expected_message_{0};
  // Set when the connection has sent too much; null before ExpectMessage.
  std::shared_ptr<std::atomic<bool>> overrun_;
  CallPermit permit_;
  // The call's peer in ConnectionTraffic; "" until the gate lets the call in.
  std::string counted_peer_;
  CallSession session_;
  // See RefuseInTurn.
  absl::Status refusal_;
  absl::Time wait_start_;
  Priority priority_ = Priority::kBatch;
  Reservation reservation_;
  grpc::ByteBuffer response_;
};

// Keeps a call that another thread may end from being deleted while this
// exists. Requires: the call hasn't ended yet.
class CallHold {
 public:
  explicit CallHold(Call* call) : call_(call) { ++call_->holders_; }
  ~CallHold() { call_->Release(); }
  CallHold(const CallHold&) = delete;
  CallHold& operator=(const CallHold&) = delete;

 private:
  Call* const call_;
};

}  // namespace convgrad
