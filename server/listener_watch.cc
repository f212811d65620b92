#include "server/listener_watch.h"

#include <fcntl.h>
#include <netdb.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/strip.h"
#include "backends/core/steady_now.h"
#include "spdlog/spdlog.h"

namespace convgrad {
namespace {

constexpr absl::Duration kPeriod = absl::Seconds(5);

// The time that a busy server may take to accept a connection.
constexpr absl::Duration kPatience = absl::Seconds(3);

// A longer silence isn't caused by load.
constexpr absl::Duration kLostAfter = absl::Minutes(1);

// Writes a UNIX address to `*result`. Returns its size; 0 if `path` is too
// long.
socklen_t UnixAddress(absl::string_view path, bool is_abstract,
                      sockaddr_storage* result) {
  auto* address = reinterpret_cast<sockaddr_un*>(result);
  address->sun_family = AF_UNIX;
  if (path.size() + 1 > sizeof(address->sun_path)) return 0;
  // The name of an abstract address begins with a zero byte.
  std::memcpy(address->sun_path + (is_abstract ? 1 : 0), path.data(),
              path.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() +
                                1);
}

// Writes the address host:port to `*result`. Returns its size; 0 if `address`
// has another form.
socklen_t HostAddress(absl::string_view address, sockaddr_storage* result) {
  const size_t colon = address.rfind(':');
  if (colon == address.npos) return 0;
  absl::string_view host = address.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(std::string(host).c_str(),
                  std::string(address.substr(colon + 1)).c_str(), &hints,
                  &found) != 0) {
    return 0;
  }
  const socklen_t size = found->ai_addrlen;
  std::memcpy(result, found->ai_addr, size);
  freeaddrinfo(found);
  return size;
}

socklen_t SocketAddress(absl::string_view address, sockaddr_storage* result) {
  if (absl::ConsumePrefix(&address, "unix-abstract:")) {
    return UnixAddress(address, true, result);
  }
  if (absl::ConsumePrefix(&address, "unix:")) {
    absl::ConsumePrefix(&address, "//");
    return UnixAddress(address, false, result);
  }
  return HostAddress(address, result);
}

}  // namespace

ListenerWatch::ListenerWatch(const std::vector<std::string>& addresses,
                             std::function<void(Hearing)> tell)
    : tell_(std::move(tell)) {
  for (const std::string& address : addresses) {
    Listener listener;
    listener.address = address;
    listener.size = SocketAddress(address, &listener.socket_address);
    if (listener.size > 0) listeners_.push_back(std::move(listener));
  }
}

void ListenerWatch::Tick(absl::Time now) {
  Hearing worst = Hearing::kGood;
  for (Listener& listener : listeners_) {
    Look(now, &listener);
    worst = std::max(worst, listener.hearing);
  }
  if (std::exchange(worst_, worst) != worst) tell_(worst);
}

void ListenerWatch::Look(absl::Time now, Listener* listener) {
  if (!listener->dial.ok()) {
    if (now < listener->dialed_at + kPeriod) return;
    listener->dialed_at = now;
    listener->dial = Dial(*listener);
  }
  // Without a socket, the answer is kNoDial.
  Answer answer = AnswerOf(listener->dial.get());
  if (answer == Answer::kNotYet) {
    if (now < listener->dialed_at + kPatience) return;
    answer = Answer::kSilence;
  }
  listener->dial = FileDescriptor();
  Note(answer, now, listener);
}

void ListenerWatch::Note(Answer answer, absl::Time now, Listener* listener) {
  listener->has_answered |= answer == Answer::kYes;
  if (!listener->has_answered) return;
  listener->silent_since = answer == Answer::kSilence
                               ? std::min(listener->silent_since, now)
                               : absl::InfiniteFuture();
  const Hearing before = listener->hearing;
  listener->hearing = answer == Answer::kYes ? Hearing::kGood
                      : now - listener->silent_since >= kLostAfter
                          ? Hearing::kLost
                          : Hearing::kDeaf;
  if (before == Hearing::kGood && listener->hearing != before) {
    spdlog::error("no connection is accepted at {}", listener->address);
  } else if (before != Hearing::kGood && answer == Answer::kYes) {
    spdlog::info("connections are accepted again at {}", listener->address);
  }
}

FileDescriptor ListenerWatch::Dial(const Listener& listener) {
  FileDescriptor dial(socket(listener.socket_address.ss_family,
                             SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  // Doesn't take the last descriptor, because the listener could then accept
  // nothing.
  const FileDescriptor spare(fcntl(dial.get(), F_DUPFD_CLOEXEC, 0));
  const bool dials =
      spare.ok() &&
      (connect(dial.get(),
               reinterpret_cast<const sockaddr*>(&listener.socket_address),
               listener.size) == 0 ||
       errno == EINPROGRESS);
  return dials ? std::move(dial) : FileDescriptor();
}

ListenerWatch::Answer ListenerWatch::AnswerOf(int dial) {
  char byte;
  if (recv(dial, &byte, 1, 0) >= 0 || errno == ECONNRESET) return Answer::kYes;
  if (errno != EAGAIN) return Answer::kNoDial;
  sockaddr_storage peer;
  socklen_t size = sizeof(peer);
  // Shuts down only a connected socket, because shutdown would end one that is
  // connecting.
  if (getpeername(dial, reinterpret_cast<sockaddr*>(&peer), &size) == 0) {
    shutdown(dial, SHUT_WR);
  }
  return Answer::kNotYet;
}

std::unique_ptr<BackgroundThread> WatchListeners(
    const std::vector<std::string>& addresses,
    std::function<void(Hearing)> tell) {
  auto watch = std::make_shared<ListenerWatch>(addresses, std::move(tell));
  watch->Tick(SteadyNow());
  return std::make_unique<BackgroundThread>(
      absl::Seconds(1), [watch] { watch->Tick(SteadyNow()); });
}

}  // namespace convgrad
