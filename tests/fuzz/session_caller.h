// Makes calls of sessions over a real socket.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "grpcpp/grpcpp.h"

namespace convgrad::fuzz {

// What a call says of its session.
struct CallMetadata {
  std::string session;  // "": of none
  int64_t epoch = 0;
  int64_t sequence = 0;  // 0: a read
  std::string call_id;
  int64_t acknowledged = 0;
};

// What came of a call.
struct Reply {
  grpc::Status status;
  std::string response;
  // The number that the server told, -1 if it told none.
  int64_t number = -1;
};

// A call in flight. Owned by one thread.
class PendingCall {
 public:
  PendingCall(const std::shared_ptr<grpc::Channel>& channel,
              const std::string& path, const std::string& request,
              const CallMetadata& metadata, int timeout_ms);
  ~PendingCall();
  // Waits for its end. To be called once.
  Reply Await();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Puts the metadata into `*context`.
void AddTo(grpc::ClientContext* context, const CallMetadata& metadata,
           int timeout_ms);
// Returns what the server said at the end, and has libFuzzer know which error
// it was.
Reply ReplyOf(const std::string& path, const grpc::ClientContext& context,
              const grpc::Status& status, std::string response);

}  // namespace convgrad::fuzz
