// `PendingCall` makes calls of sessions over a real socket.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "grpcpp/grpcpp.h"

namespace convgrad::fuzz {

// The metadata of a call.
struct CallMetadata {
  std::string session;  // "": no session.
  int64_t epoch = 0;
  int64_t sequence = 0;  // 0: a read.
  std::string call_id;
  int64_t acknowledged = 0;
};

// The reply to a call.
struct Reply {
  grpc::Status status;
  std::string response;
  // The number that the server returned; -1 if none.
  int64_t number = -1;
};

// A call in flight. Owned by one thread.
class PendingCall {
 public:
  PendingCall(const std::shared_ptr<grpc::Channel>& channel,
              const std::string& path, const std::string& request,
              const CallMetadata& metadata, int timeout_ms);
  ~PendingCall();
  // Blocks until the call ends; call it once.
  Reply Await();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Adds the metadata to `*context`.
void AddTo(grpc::ClientContext* context, const CallMetadata& metadata,
           int timeout_ms);
// Returns the server's reply, and tells libFuzzer which error it was.
Reply ReplyOf(const std::string& path, const grpc::ClientContext& context,
              const grpc::Status& status, std::string response);

}  // namespace convgrad::fuzz
