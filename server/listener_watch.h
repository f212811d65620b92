// `ListenerWatch` checks that the server's own sockets still accept
// connections.
#pragma once

#include <sys/socket.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/file_descriptor.h"
#include "server/machine/background_thread.h"
#include "server/rpc/transport/readiness.h"

namespace convgrad {

// `ListenerWatch` connects to each address regularly, and shuts down its side
// of the connection at once. A server that accepts the connection, with or
// without TLS, then answers or closes it. A connection that is only in the
// kernel's backlog stays silent.
//
// It never blocks: each Tick checks the results of earlier connections. Owned
// by one thread.
class ListenerWatch {
 public:
  // Watches the addresses (host:port, unix:path or unix-abstract:name) that
  // have answered once. Calls `tell` at each change of the worst state.
  ListenerWatch(const std::vector<std::string>& addresses,
                std::function<void(Hearing)> tell);

  // Starts the connections that are due, and checks those in progress.
  void Tick(absl::Time now);

 private:
  // The result of a connection. kNoDial: there was no descriptor, or no one
  // listens.
  enum class Answer { kYes, kSilence, kNoDial, kNotYet };
  struct Listener {
    std::string address;
    sockaddr_storage socket_address = {};
    socklen_t size = 0;
    FileDescriptor dial;  // None if no connection is in progress.
    absl::Time dialed_at = absl::InfinitePast();
    absl::Time silent_since = absl::InfiniteFuture();
    bool has_answered = false;
    Hearing hearing = Hearing::kGood;
  };

  static void Look(absl::Time now, Listener* listener);
  static void Note(Answer answer, absl::Time now, Listener* listener);
  // Returns the connecting socket, none on failure.
  static FileDescriptor Dial(const Listener& listener);
  static Answer AnswerOf(int dial);

  const std::function<void(Hearing)> tell_;
  std::vector<Listener> listeners_;
  Hearing worst_ = Hearing::kGood;
};

// Returns a thread that calls Tick of a ListenerWatch each second.
std::unique_ptr<BackgroundThread> WatchListeners(
    const std::vector<std::string>& addresses,
    std::function<void(Hearing)> tell);

}  // namespace convgrad
