// These classes and functions handle the calls of convgrad.v1.ConvGradSessions
// that carry no tensors.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "convgrad/v1/session.pb.h"
#include "server/rpc/calls/message_call.h"

namespace convgrad {

// Handles ListSessions.
absl::Status HandleListSessions(PlainCall* call);

// Handles HaveTensors.
absl::Status HandleHaveTensors(PlainCall* call);

// Handles CloseSession. Answers when nothing of the session is on disk.
absl::Status HandleCloseSession(PlainCall* call);

// `SessionCall` is the base of the calls that return a session. It waits until
// the content of a durable session is in memory.
class SessionCall : public MessageCall {
 public:
  using MessageCall::MessageCall;

 protected:
  // Returns the session that the message names.
  virtual absl::StatusOr<SessionUse> FindSession() = 0;
  // Continues with `use()`. Must lead to one Respond or End.
  virtual void OnSession() = 0;
  // Describes the session to a caller in `epoch`.
  void Respond(int64_t epoch);
  // Calls `done` when the newest capture of the session is on disk, at once if
  // the session isn't durable; or with the error why it isn't on disk. Ends the
  // call instead if the client leaves or the deadline is over first.
  void Save(SessionArchive::Done done);

  // Keeps the session from expiring until the call is over.
  const SessionUse& use() const { return use_; }

 private:
  absl::Status OnMessage() final;

  SessionUse use_;
};

// `OpenSessionCall` answers when a durable session is on disk.
class OpenSessionCall final : public SessionCall {
 public:
  using SessionCall::SessionCall;

 private:
  absl::StatusOr<SessionUse> FindSession() override;
  void OnSession() override;
};

class RenewSessionCall final : public SessionCall {
 public:
  using SessionCall::SessionCall;

 private:
  absl::StatusOr<SessionUse> FindSession() override;
  void OnSession() override;

  int64_t epoch_ = 0;  // A field of the request.
};

// `ResumeSessionCall` answers when no change of an earlier epoch runs. If the
// session is durable and the server can write, all changes are on disk then.
class ResumeSessionCall final : public SessionCall {
 public:
  using SessionCall::SessionCall;

 private:
  absl::StatusOr<SessionUse> FindSession() override;
  void OnSession() override;

  // Fields of the request.
  int64_t held_ = 0;
  std::string call_id_;
};

}  // namespace convgrad
