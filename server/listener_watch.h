// `ListenerWatch` checks that the server's own sockets still accept
// connections.
#pragma once

#include <sys/socket.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/background_thread.h"
#include "server/rpc/transport/readiness.h"

namespace convgrad {

// Dials each address now and then. Whoever accepts such a connection, with TLS
// or without, answers or closes it, because it is closed towards the listener
// right away; one that is only in the kernel's backlog stays silent.
//
// Never waits: it looks at what has come whenever it is told the time. Owned by
// one thread.
class ListenerWatch {
 public:
  // Of `addresses`, each host:port, unix:path or unix-abstract:name, it watches
  // those that have answered once. `tell` hears each change of the worst.
  ListenerWatch(const std::vector<std::string>& addresses,
                std::function<void(Hearing)> tell);
  ~ListenerWatch();
  ListenerWatch(const ListenerWatch&) = delete;
  ListenerWatch& operator=(const ListenerWatch&) = delete;

  // Starts the dials that are due, and checks those in progress.
  void Tick(absl::Time now);

 private:
  // Of a dial; kNoDial: there is no descriptor for one, or nobody is there.
  enum class Answer { kYes, kSilence, kNoDial, kNotYet };
  struct Listener {
    std::string address;
    sockaddr_storage socket_address = {};
    socklen_t size = 0;
    int dial = -1;  // A socket; -1: no dial is in progress.
    absl::Time dialed_at = absl::InfinitePast();
    absl::Time silent_since = absl::InfiniteFuture();
    bool has_answered = false;
    Hearing hearing = Hearing::kGood;
  };

  static void Look(absl::Time now, Listener* listener);
  static void Note(Answer answer, absl::Time now, Listener* listener);
  // Returns the socket; -1 if that isn't possible, with `errno` set.
  static int Dial(const Listener& listener);
  static Answer AnswerOf(int dial);

  const std::function<void(Hearing)> tell_;
  std::vector<Listener> listeners_;
  Hearing worst_ = Hearing::kGood;
};

// Has a thread of its own tell such a watch the time, each second.
std::unique_ptr<BackgroundThread> WatchListeners(
    const std::vector<std::string>& addresses,
    std::function<void(Hearing)> tell);

}  // namespace convgrad
