// The life of one call, whatever it is: arrival, its turn in a session, memory
// before bytes, one end, each step counted.
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
#include "server/rpc/calls/call_record.h"
#include "server/rpc/calls/lifecycle.h"
#include "server/rpc/calls/method.h"
#include "server/rpc/calls/session_part.h"

namespace convgrad {

// Made by CreateReactor, deletes itself in OnDone. gRPC comes there only after
// End, and End is called only when nothing else (a waiter in the budget, a job
// in the scheduler) can call back any more: a call is never touched dead.
//
// Its steps follow one another, on whatever thread; only OnCancel may come at
// any time beside them.
class Call : public grpc::ServerGenericBidiReactor {
 public:
  // `method` and `services` outlive the call.
  Call(const Method& method, const CallServices& services,
       grpc::GenericCallbackServerContext* context);

  // Starts the call, if the server takes calls and this client may make it;
  // ends it otherwise. Called once, in CreateReactor.
  void Begin();

  // To be called where one step ends and where the next begins, which may be on
  // another thread; once also where the server is complete.
  static void HandOver();

 protected:
  // Does what leads to exactly one End.
  virtual void Start() = 0;

  // Has AwaitTurn end with `status` where the call would go on: what refuses a
  // change counts as its failure, in its turn. To be called before AwaitTurn.
  void RefuseInTurn(absl::Status status) { refusal_ = std::move(status); }

  ~Call() override;

  // Counts the call as active. One of a session enters it and waits for its
  // turn; OnTurn tells how that ended, maybe before this returns, and for one
  // that `prepares` OnPrepare may come before. To be called once, before memory
  // is asked for.
  void AwaitTurn(bool prepares);

  // The call goes on if `decision` runs; otherwise EndAs has to follow.
  virtual void OnTurn(const ChangeOrder::Decision& /*decision*/) {}
  // The call may ask for memory and read its message before its turn, which may
  // come meanwhile, or have come.
  virtual void OnPrepare() {}
  // Ends the call as `decision` says: as the one that it repeats, or refused.
  // Requires: !decision.runs().
  void EndAs(const ChangeOrder::Decision& decision);

  // Waits for `bytes` of the budget, in place of what the call has. OnMemory
  // tells how the wait ended, maybe before this returns.
  void AwaitMemory(int64_t bytes);
  // Leaves the budget's queue; OnMemory is told. Returns false if the call
  // isn't in it.
  bool CancelWait();

  // Returns what takes the memory to parse a message's head, in addition to
  // what the call has; a call without memory parses small messages only, and
  // takes none. Errors of what is returned: those of Reservation::TryGrow.
  AdmitHead AdmitsHead();

  // OK: `reservation()` has the bytes. Otherwise End is still to come.
  virtual void OnMemory(const absl::Status& /*status*/) {}

  // The call's client has gone; End is still to come.
  virtual void OnGone() {}

  // Lets go of all memory, and completes `sample()`: called once, by End.
  virtual void Settle(const absl::Status& /*status*/) {}

  // The client didn't do in time what AwaitClient waits for; End is still to
  // come.
  virtual void OnSlowClient() {}

  // What is told of the call's operation, beyond its status; null if it has
  // none.
  OpSample* sample() { return sample_.operation.empty() ? nullptr : &sample_; }

  // The one exit of every call: reports it and gives gRPC the status, and
  // `response` if that is OK. The call may be gone when this returns.
  void End(absl::Status status, grpc::ByteBuffer* response = nullptr);

  // Ends the call with `response`. What a change of a session writes takes
  // effect now, unless the call's client has gone or its deadline is over.
  void Answer(grpc::ByteBuffer response);

  // Runs `work`, which copies or hashes `bytes` bytes that the client has put,
  // and then `next`. A thread of the server's own does both, not gRPC's, unless
  // the bytes are so few that the change of threads would take longer. Ends the
  // call with the error of `work`, or without `work` if the client has gone
  // meanwhile. To be called last: the call may be gone when this returns.
  void Copy(int64_t bytes, std::function<absl::Status()> work,
            std::function<void()> next);

  // Calls `start`, which asks gRPC for what the client has to do, and gives the
  // client the time that `bytes` may take, until the deadline at most. After
  // that OnSlowClient comes, on another thread. To be called last: the call may
  // be gone when this returns.
  void AwaitClient(int64_t bytes, const std::function<void()>& start);
  // As AwaitClient, until this time.
  void AwaitClientUntil(absl::Time until, const std::function<void()>& start);
  // To be called where what AwaitClient waits for has come. Returns false if
  // that is too late: OnSlowClient has the call, and nothing may touch it.
  bool StopAwaitingClient();

  // Lets the call's connection send a message of up to `bytes` from now on. If
  // it sends more than all of its calls may, gRPC breaks the call off. To be
  // called before the message is read.
  void ExpectMessage(int64_t bytes);
  // The message has come, or won't come.
  void SettleMessage();

  // Has gRPC break the call off if the client doesn't take `bytes` in time;
  // in place of what was to be taken before.
  void WatchAnswer(int64_t bytes);

  // Errors: kInvalidArgument if the client asks for no known priority.
  absl::Status ReadPriority();
  // Checks that the call is part of a session where its method needs that, and
  // a change of it where its method is one.
  // Errors: kInvalidArgument naming "session".
  absl::Status CheckSession() const;
  // Returns the value of the client's metadata `key`, "" if there is none.
  absl::string_view Metadata(absl::string_view key) const;

  // Returns the status of a call whose client has gone.
  absl::Status WhyGone() const;
  // Returns whether a read failed because the call did, not because the client
  // has no more to send. Requires: a read failed.
  bool FailedToRead() const;
  // Has gRPC drop what it can't get rid of.
  void BreakOff() { context_->TryCancel(); }

  // As the client asks for in kPriorityKey.
  Priority priority() const { return priority_; }
  // Who calls, as limits and turns go by.
  const std::string& client() const { return visit().client(); }
  const Visit& visit() const { return record_.visit(); }
  const Method& method() const { return method_; }
  const CallServices& services() const { return services_; }
  Reservation* reservation() { return &reservation_; }
  SessionPart& session() { return session_; }
  absl::Time arrival() const { return record_.arrival(); }
  absl::Time deadline() const { return deadline_; }
  // Set when the client has gone.
  const std::shared_ptr<std::atomic<bool>>& cancelled() const {
    return cancelled_;
  }

  // The sample of the call's operation, if it has one. Plain data: it may end
  // after `attendance_`.
  OpSample sample_;

  void OnDone() override;
  // Deletes the call when nobody else holds it. To be called for OnDone, once.
  void Release();

 private:
  friend class CallHold;

  // Tells how the wait for memory ended.
  void EndWait(absl::StatusOr<Reservation> granted);
  // Returns what counts the bytes of the call's connection; null if unknown.
  ConnectionTraffic::Count CountTraffic() const;
  // Tells OnTurn, or that the call is refused.
  void TellTurn(const ChangeOrder::Decision& decision);
  // Leaves those who wait for their turn. Returns false if the call isn't one.
  bool CancelTurn();
  void OnCancel() final;

  // gRPC, until OnDone, and each CallHold.
  std::atomic<int> holders_{1};
  // Before what follows, so that it ends last: the server waits for it before
  // it goes.
  Attendance attendance_;
  const Method& method_;
  const CallServices& services_;
  grpc::GenericCallbackServerContext* const context_;
  CallRecord record_;
  const Role role_;
  const absl::Time deadline_;
  const std::shared_ptr<std::atomic<bool>> cancelled_;
  // In the budget's queue; 0 if not there.
  std::atomic<uint64_t> waiter_id_{0};
  // In the ClientWatch; 0 if not there so far. What the client is to do, and
  // its taking of the answer.
  std::atomic<uint64_t> client_wait_{0};
  uint64_t answer_wait_ = 0;
  // In the ArrivalWatch; 0 if not there.
  std::atomic<uint64_t> arrival_{0};
  // Set when the connection has sent too much; null before ExpectMessage.
  std::shared_ptr<std::atomic<bool>> overrun_;
  SessionPart session_;
  // See RefuseInTurn.
  absl::Status refusal_;
  absl::Time wait_start_;
  Priority priority_ = Priority::kBatch;
  Reservation reservation_;
  grpc::ByteBuffer response_;
};

// Keeps a call that something else may end from being deleted before its own
// step is over. Requires: the call hasn't ended yet.
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
