// `Acceptor` accepts connections for gRPC. gRPC's own listener names neither
// the peer nor the reason of a failed connection. It also never accepts again
// after one accept has failed (1.51; grpc issue 16058).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/file_descriptor.h"

namespace convgrad {

// The state of an acceptor. kDeaf: there is no descriptor for a connection.
// kLost: its thread has stood still for so long that only a new process helps.
enum class Hearing { kGood, kDeaf, kLost };

// `Acceptor` passes a connection to gRPC when its first byte has come and fits
// the protocol: TLS, or HTTP/2 in plaintext. A client of the other protocol
// gets an HTTP/1.1 answer that says so, and the log names the client. The
// acceptor closes a silent connection after the time that gRPC waits for a
// handshake, or when it needs the descriptor.
//
// One thread of its own does all work. Thread-compatible.
class Acceptor {
 public:
  // Takes ownership of a connected socket.
  using Take = std::function<void(int socket)>;
  // Ends up to `most` taken connections, so that their descriptors become free
  // soon. Returns how many it ended.
  using EndSome = std::function<int(int most)>;

  // Keeps up to `most_spare` descriptors, a sixteenth of the limit at most,
  // free for files and other sockets of the process. Calls `end_some`, at most
  // ten times a second, while less than twice as many are free.
  explicit Acceptor(
      absl::Duration patience, int64_t most_spare = 0,
      EndSome end_some = [](int) { return 0; });
  // Stops the thread and removes the files of UNIX sockets.
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Binds an address of --listen and returns its port, 0 for a UNIX socket. Its
  // connections wait until Start. `take` gets those that speak TLS, or
  // plaintext unless `speaks_tls`.
  // Errors: those of ListenAt.
  absl::StatusOr<int> Listen(const std::string& address, bool speaks_tls,
                             const Take& take);

  // Starts the thread. Call it once, after the last Listen.
  void Start();

  // Returns the state. Call it twice a second. Thread-safe.
  Hearing hearing();

 private:
  struct Listener {
    FileDescriptor socket;
    bool speaks_tls;
    Take take;
  };
  struct Waiting {
    FileDescriptor socket;
    absl::Time accepted_at;
    const Listener* listener;
  };

  void Run();
  absl::Duration UntilNextChore(absl::Time now) const;
  void AcceptAll(const Listener& listener, absl::Time now);
  // Returns how many descriptors are spare.
  int64_t Spare() const;
  // Returns whether the file is open and not one of the last descriptors,
  // `spares` times as many as are spare.
  bool MayUse(const FileDescriptor& file, int spares = 1) const;
  // Returns whether there is a descriptor for a connection. If there is none,
  // errno tells why.
  bool HasRoom() const;
  // Calls `end_some_`, unless that was a moment ago.
  void EndSomeTaken(absl::Time now);
  // Frees a descriptor, or stops listening for a while because of `error`, an
  // errno. Returns whether another accept may succeed.
  bool MakeRoom(int error, absl::Time now);
  void SetListening(bool listening);
  // Listens again if there is a descriptor for a connection.
  void Resume(absl::Time now);
  void Look(int socket);
  // Closes the connection that has waited for the longest time. Requires: one
  // waits.
  void DropFirst();

  const absl::Duration patience_;
  const int64_t most_spare_;
  const EndSome end_some_;
  const FileDescriptor poll_;
  const FileDescriptor stop_;
  std::map<int, Listener> listeners_;  // By descriptor.
  std::vector<std::string> paths_;     // The files of UNIX sockets.
  // The connections that have sent nothing, in the order of acceptance.
  std::list<Waiting> waiting_;
  std::unordered_map<int, std::list<Waiting>::iterator> by_socket_;
  absl::Time resume_at_ = absl::InfiniteFuture();
  absl::Time end_some_at_ = absl::InfinitePast();
  absl::Time complain_at_ = absl::InfinitePast();
  absl::Time tell_ended_at_ = absl::InfinitePast();
  std::atomic<bool> is_listening_{true};
  // Calls of hearing() since the thread last looked at its sockets.
  std::atomic<int> unseen_{0};
  std::thread thread_;
};

}  // namespace convgrad
