// `Replay` keeps the committed changes of a durable session that a restart of
// its server would lose. Internal to the client.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/byte_buffer.h"

namespace convgrad {

// Sends a call in a context that has its session's metadata, and returns the
// reply's message.
using SendCall =
    std::function<absl::StatusOr<grpc::ByteBuffer>(grpc::ClientContext*)>;

// A change that doesn't refer to its caller's memory, so that it can be sent
// again after its caller has gone on.
struct OwnedChange {
  SendCall send;      // null: there is no such change
  int64_t bytes = 0;  // of its messages
};

// Thread-compatible.
class Replay {
 public:
  struct Kept {
    OwnedChange change;
    std::string call_id;
  };

  // `durable_number`: the newest change that is on the server's disk. `limit`:
  // bytes to keep. At three quarters of it the session needs a snapshot, and
  // beyond it new changes wait for that.
  Replay(int64_t durable_number, int64_t limit)
      : limit_(limit), durable_number_(durable_number) {}

  int64_t durable_number() const { return durable_number_; }
  // The newest change that is kept; 0: there is none.
  int64_t newest() const { return kept_.empty() ? 0 : kept_.rbegin()->first; }
  bool Has(int64_t sequence) const { return kept_.contains(sequence); }
  bool needs_snapshot() const { return !is_saving_ && bytes_ > limit_ / 4 * 3; }
  // Whether new changes must wait for the snapshot that was asked for.
  bool is_full() const { return is_saving_ && bytes_ > limit_; }

  // Keeps a committed change, unless it is on the server's disk.
  void Add(int64_t sequence, Kept kept);
  // Removes and returns the changes after `number`.
  std::map<int64_t, Kept> TakeAfter(int64_t number);
  // Drops the changes up to `number`, which are on the server's disk.
  void NoteDurable(int64_t number);

  // Notes that a snapshot was asked for.
  void BeginSaving();
  // Handles the answer to that. Drops all changes if they exceed the limit and
  // the server can't write, or if they exceed twice the limit and the snapshot
  // had no later state, so that the training goes on. A restart of the server
  // then ends the session.
  void EndSaving(const absl::Status& status);

 private:
  const int64_t limit_;
  int64_t durable_number_;
  std::map<int64_t, Kept> kept_;
  int64_t bytes_ = 0;
  bool is_saving_ = false;
  // The durable number when the snapshot was asked for.
  int64_t saving_from_ = 0;
};

}  // namespace convgrad
