#include "server/rpc/transport/acceptor.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "backends/core/status.h"
#include "backends/core/steady_now.h"
#include "server/machine/unix_socket.h"
#include "server/rpc/transport/listening_socket.h"
#include "server/rpc/transport/refusal_log.h"
#include "server/rpc/transport/tls_failures.h"
#include "spdlog/spdlog.h"

namespace convgrad {
namespace {

// The pause after a shortage of descriptors, until connections close, and
// between two calls of EndSome.
constexpr absl::Duration kPause = absl::Milliseconds(100);

// The pause after a call of EndSome that ended none.
constexpr absl::Duration kPauseInVain = absl::Seconds(1);

constexpr absl::Duration kComplaintPeriod = absl::Minutes(1);

// The thread looks at its sockets at least once a second. A longer silence, of
// a minute, isn't caused by load.
constexpr int kMostUnseen = 120;

// A TLS record with a handshake message begins with it (RFC 8446, 5.1).
constexpr char kTlsHandshake = 0x16;

bool IsShortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS ||
         error == ENOMEM;
}

// Returns whether a connection waits to be accepted. Without a free descriptor,
// accept fails in the same way whether or not one waits.
bool IsAwaited(int listener) {
  pollfd file = {listener, POLLIN, 0};
  return poll(&file, 1, 0) > 0;
}

int64_t DescriptorLimit() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int64_t>(limit.rlim_cur);
}

void Watch(int poll, int file, uint32_t events, int operation) {
  epoll_event event = {};
  event.events = events;
  event.data.fd = file;
  epoll_ctl(poll, operation, file, &event);
}

// The most pieces that Refuse reads. A client sends at most an HTTP/2 window,
// or less of TLS, before it waits for the server. The acceptor stops reading
// after that, because its one thread serves all other connections as well.
constexpr int kMostUnreadPieces = 16;

void Refuse(int socket, absl::string_view reason) {
  // Reads the unread bytes, because close would otherwise reset the connection
  // and drop the answer.
  std::array<char, 4096> unread;
  for (int i = 0; i < kMostUnreadPieces; ++i) {
    if (recv(socket, unread.data(), unread.size(), 0) <= 0) break;
  }
  // The answer is HTTP/1.1, which HTTP/2 clients recognize. After a GOAWAY of
  // HTTP/2 a gRPC client would reconnect at once, without end.
  const std::string answer = absl::StrCat(
      "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n"
      "Content-Type: text/plain\r\nContent-Length: ",
      reason.size() + 1, "\r\n\r\n", reason, "\n");
  send(socket, answer.data(), answer.size(), MSG_NOSIGNAL);
  shutdown(socket, SHUT_WR);
}

}  // namespace

Acceptor::Acceptor(absl::Duration patience, int64_t most_spare,
                   EndSome end_some)
    : patience_(patience),
      most_spare_(most_spare),
      end_some_(std::move(end_some)),
      poll_(epoll_create1(EPOLL_CLOEXEC)),
      stop_(eventfd(0, EFD_CLOEXEC)) {
  Watch(poll_.get(), stop_.get(), EPOLLIN, EPOLL_CTL_ADD);
}

Acceptor::~Acceptor() {
  if (thread_.joinable()) {
    eventfd_write(stop_.get(), 1);
    thread_.join();
  }
  for (const std::string& path : paths_) RemoveSocket(path);
}

absl::StatusOr<int> Acceptor::Listen(const std::string& address,
                                     bool speaks_tls, const Take& take) {
  ASSIGN_OR_RETURN(ListeningSockets listening, ListenAt(address));
  for (FileDescriptor& socket : listening.sockets) {
    const int file = socket.get();
    Watch(poll_.get(), file, EPOLLIN, EPOLL_CTL_ADD);
    listeners_.emplace(file, Listener{std::move(socket), speaks_tls, take});
  }
  paths_.push_back(std::move(listening.path));
  return listening.port;
}

void Acceptor::Start() {
  thread_ = std::thread([this] { Run(); });
}

Hearing Acceptor::hearing() {
  if (++unseen_ > kMostUnseen) return Hearing::kLost;
  return is_listening_ ? Hearing::kGood : Hearing::kDeaf;
}

void Acceptor::Run() {
  std::array<epoll_event, 64> events;
  while (true) {
    const int64_t wait =
        absl::ToInt64Milliseconds(UntilNextChore(SteadyNow())) + 1;
    const int count =
        epoll_wait(poll_.get(), events.data(), events.size(),
                   static_cast<int>(std::min(wait, int64_t{1000})));
    const absl::Time now = SteadyNow();
    unseen_ = 0;
    for (int i = 0; i < count; ++i) {
      const int file = events[i].data.fd;
      if (file == stop_.get()) return;
      if (by_socket_.contains(file)) {
        Look(file);
      } else if (const auto it = listeners_.find(file);
                 it != listeners_.end()) {
        AcceptAll(it->second, now);
      }
    }
    while (!waiting_.empty() &&
           now - waiting_.front().accepted_at >= patience_) {
      DropFirst();
    }
    if (now >= resume_at_) Resume(now);
  }
}

absl::Duration Acceptor::UntilNextChore(absl::Time now) const {
  absl::Time next = resume_at_;
  if (!waiting_.empty()) {
    next = std::min(next, waiting_.front().accepted_at + patience_);
  }
  return std::clamp(next - now, absl::ZeroDuration(), absl::Seconds(1));
}

void Acceptor::AcceptAll(const Listener& listener, absl::Time now) {
  const int from = listener.socket.get();
  while (IsAwaited(from)) {
    // The system keeps a connection that isn't accepted. An accepted one would
    // have to be closed.
    if (!HasRoom() && !MakeRoom(errno, now)) return;
    FileDescriptor socket(
        accept4(from, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.ok()) {
      // A connection failed. poll_ reports the next one.
      if (!IsShortage(errno) || !MakeRoom(errno, now)) return;
      continue;
    }
    // Another thread took the descriptor meanwhile.
    if (!MayUse(socket)) continue;
    if (!MayUse(socket, /*spares=*/2)) EndSomeTaken(now);
    const int file = socket.get();
    waiting_.push_back({std::move(socket), now, &listener});
    by_socket_[file] = std::prev(waiting_.end());
    Watch(poll_.get(), file, EPOLLIN, EPOLL_CTL_ADD);
  }
}

int64_t Acceptor::Spare() const {
  return std::min(most_spare_, DescriptorLimit() / 16);
}

bool Acceptor::MayUse(const FileDescriptor& file, int spares) const {
  // The system gives the lowest number that is free.
  return file.ok() && file.get() < DescriptorLimit() - spares * Spare();
}

bool Acceptor::HasRoom() const {
  const FileDescriptor next(eventfd(0, EFD_CLOEXEC));
  if (next.ok()) errno = EMFILE;  // It may be one of the last.
  return MayUse(next);
}

void Acceptor::EndSomeTaken(absl::Time now) {
  if (now < end_some_at_) return;
  end_some_at_ = now + kPause;
  const int ended = end_some_(static_cast<int>(std::max<int64_t>(Spare(), 1)));
  // A search takes long if there are very many connections.
  if (ended == 0) end_some_at_ = now + kPauseInVain;
  if (ended == 0 || now < tell_ended_at_) return;
  spdlog::warn("few descriptors are left: ended {} connections without calls",
               ended);
  tell_ended_at_ = now + kComplaintPeriod;
}

bool Acceptor::MakeRoom(int error, absl::Time now) {
  while (!waiting_.empty()) {
    // Closes the connection that has been silent for the longest time. Clients
    // send first, so it is probably not a client. After a burst of connections,
    // it may have sent bytes that this thread hasn't seen yet.
    const int first = waiting_.front().socket.get();
    Look(first);
    if (by_socket_.contains(first)) DropFirst();
    if (HasRoom()) return true;
  }
  EndSomeTaken(now);
  if (now >= complain_at_) {
    spdlog::error("no connection can be accepted: {}", std::strerror(error));
    complain_at_ = now + kComplaintPeriod;
  }
  SetListening(false);
  resume_at_ = now + kPause;
  return false;
}

void Acceptor::SetListening(bool listening) {
  for (const auto& [file, listener] : listeners_) {
    Watch(poll_.get(), file, listening ? uint32_t{EPOLLIN} : 0, EPOLL_CTL_MOD);
  }
  is_listening_ = listening;
  resume_at_ = absl::InfiniteFuture();
}

void Acceptor::Resume(absl::Time now) {
  if (HasRoom()) return SetListening(true);
  EndSomeTaken(now);
  resume_at_ = now + kPause;
}

void Acceptor::Look(int socket) {
  char first;
  const ssize_t size = recv(socket, &first, 1, MSG_PEEK);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  const auto found = by_socket_.find(socket);
  FileDescriptor connection = std::move(found->second->socket);
  const Listener& listener = *found->second->listener;
  waiting_.erase(found->second);
  by_socket_.erase(found);
  if (size <= 0) return;
  std::string peer = PeerOf(socket);
  if ((first == kTlsHandshake) != listener.speaks_tls) {
    const absl::string_view reason = listener.speaks_tls
                                         ? "TLS is spoken here, not plaintext"
                                         : "plaintext is spoken here, not TLS";
    LogRefusal(peer, reason);
    Refuse(socket, reason);
    return;
  }
  Watch(poll_.get(), socket, 0, EPOLL_CTL_DEL);
  const HandshakesOf handshakes(std::move(peer));
  listener.take(connection.Release());
}

void Acceptor::DropFirst() {
  by_socket_.erase(waiting_.front().socket.get());
  waiting_.pop_front();
}

}  // namespace convgrad
