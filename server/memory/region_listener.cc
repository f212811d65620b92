#include "server/memory/region_listener.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <list>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "backends/core/steady_now.h"
#include "proto/file_descriptor.h"
#include "proto/region_handshake.h"
#include "server/machine/unix_socket.h"

namespace convgrad {
namespace {

// The pause after accept found no free descriptor.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);

absl::Status CannotListen(const std::string& path, absl::string_view why) {
  return OutOfRange("--regions_listen",
                    absl::StrCat("'unix:", path, "' (", why, ")"),
                    "the path of a UNIX socket that is free");
}

absl::StatusOr<FileDescriptor> Listen(const std::string& path) {
  if (path.empty() || path.size() >= sizeof(sockaddr_un::sun_path)) {
    return CannotListen(path, absl::StrCat("of ", path.size(), " bytes"));
  }
  absl::StatusOr<FileDescriptor> socket = BindToPath(path);
  if (!socket.ok()) return CannotListen(path, socket.status().message());
  // No client can connect before listen. The listener also checks each peer.
  if (chmod(path.c_str(), S_IRUSR | S_IWUSR) != 0 ||
      listen(socket->get(), SOMAXCONN) != 0) {
    absl::Status status = CannotListen(path, std::strerror(errno));
    unlink(path.c_str());
    return status;
  }
  return socket;
}

// Sends the reply, with `file` if it isn't null. It is the only reply of its
// connection, so the socket has room for it.
bool SendReply(int connection, RegionReply reply, const FileDescriptor* file) {
  iovec bytes = {&reply, sizeof(reply)};
  msghdr message = {};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (file != nullptr) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int number = file->get();
    std::memcpy(CMSG_DATA(header), &number, sizeof(number));
  }
  return sendmsg(connection, &message, MSG_DONTWAIT | MSG_NOSIGNAL) ==
         static_cast<ssize_t>(sizeof(reply));
}

void Refuse(int connection, const absl::Status& status) {
  RegionReply reply;
  reply.status = static_cast<uint32_t>(status.code());
  const absl::string_view text = status.message();
  text.copy(reply.message, sizeof(reply.message) - 1);
  SendReply(connection, reply, nullptr);
}

class PollingListener final : public RegionListener {
 public:
  PollingListener(RegionListenerOptions options, RegionRegistry* registry,
                  FileDescriptor socket, FileDescriptor stop)
      : options_(std::move(options)),
        registry_(registry),
        socket_(std::move(socket)),
        stop_(std::move(stop)),
        thread_([this] { Run(); }) {}

  ~PollingListener() override {
    eventfd_write(stop_.get(), 1);
    thread_.join();
    for (const Connection& connection : connections_) End(connection);
    RemoveSocket(options_.path);
  }

 private:
  struct Connection {
    FileDescriptor file;
    // The end of the time for the request.
    absl::Time deadline;
    RegionRequest request;
    size_t received = 0;
    std::string region_id;  // Empty before there is a region.
  };

  void Run();
  // Waits for events of `polled` or the next deadline.
  void Poll(std::vector<pollfd>* polled) const;
  void Accept();
  // These functions return whether the connection stays open.
  bool Read(Connection* connection);
  bool Answer(Connection* connection);
  absl::Status CheckPeer(int connection) const;
  void End(const Connection& connection) {
    if (!connection.region_id.empty()) registry_->Remove(connection.region_id);
  }

  const RegionListenerOptions options_;
  RegionRegistry* const registry_;
  const FileDescriptor socket_;
  // An eventfd; readable when the thread has to end.
  const FileDescriptor stop_;
  // Only the thread uses the members below.
  std::list<Connection> connections_;
  absl::Time accept_from_ = absl::InfinitePast();
  std::thread thread_;
};

void PollingListener::Poll(std::vector<pollfd>* polled) const {
  const absl::Time now = SteadyNow();
  absl::Time wake = absl::InfiniteFuture();
  const bool accepting = accept_from_ <= now;
  if (!accepting) wake = accept_from_;
  *polled = {{stop_.get(), POLLIN, 0},
             {accepting ? socket_.get() : -1, POLLIN, 0}};
  for (const Connection& connection : connections_) {
    polled->push_back({connection.file.get(), POLLIN, 0});
    if (connection.region_id.empty())
      wake = std::min(wake, connection.deadline);
  }
  int timeout_ms = -1;
  if (wake != absl::InfiniteFuture()) {
    const absl::Duration left = std::max(wake - now, absl::ZeroDuration());
    timeout_ms = static_cast<int>(absl::ToInt64Milliseconds(left)) + 1;
  }
  poll(polled->data(), polled->size(), timeout_ms);
}

void PollingListener::Run() {
  std::vector<pollfd> polled;
  while (true) {
    Poll(&polled);
    if (polled[0].revents != 0) return;
    const absl::Time now = SteadyNow();
    size_t at = 2;
    for (auto next = connections_.begin(); next != connections_.end(); ++at) {
      const auto connection = next++;
      bool stays = polled[at].revents == 0 || Read(&*connection);
      if (connection->region_id.empty() && connection->deadline <= now) {
        stays = false;
      }
      if (stays) continue;
      End(*connection);
      connections_.erase(connection);
    }
    if (polled[1].revents != 0) Accept();
  }
}

absl::Status PollingListener::CheckPeer(int connection) const {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    peer.uid = static_cast<uid_t>(-1);
  }
  if (peer.uid == options_.owner || peer.uid == 0) return absl::OkStatus();
  return MakeError(absl::StatusCode::kPermissionDenied,
                   {Reason::kOutOfRange, "peer", absl::StrCat("uid ", peer.uid),
                    "the server's own user, or root"});
}

void PollingListener::Accept() {
  FileDescriptor file(
      accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!file.ok()) {
    accept_from_ = SteadyNow() + kAcceptPause;
    return;
  }
  absl::Status status = CheckPeer(file.get());
  const int count = static_cast<int>(connections_.size());
  if (status.ok() && count >= options_.max_connections) {
    status = Busy("connections", count, "fewer");
  }
  if (!status.ok()) return Refuse(file.get(), status);
  Connection& connection = connections_.emplace_back();
  connection.file = std::move(file);
  connection.deadline = SteadyNow() + options_.request_timeout;
}

bool PollingListener::Read(Connection* connection) {
  char* request = reinterpret_cast<char*>(&connection->request);
  // After the request no byte may come. This byte only tells a closed
  // connection from one that sends more.
  char excess;
  const bool complete = connection->received == sizeof(RegionRequest);
  const ssize_t got =
      complete
          ? recv(connection->file.get(), &excess, 1, MSG_DONTWAIT)
          : recv(connection->file.get(), request + connection->received,
                 sizeof(RegionRequest) - connection->received, MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0 || complete) return false;
  connection->received += static_cast<size_t>(got);
  return connection->received < sizeof(RegionRequest) || Answer(connection);
}

bool PollingListener::Answer(Connection* connection) {
  const int file = connection->file.get();
  if (connection->request.magic != kRegionMagic) {
    Refuse(file,
           Malformed("region request", "another magic number", "CGREGIO1"));
    return false;
  }
  absl::StatusOr<RegionRegistry::Registration> made =
      registry_->Create(connection->request.byte_length);
  if (!made.ok()) {
    Refuse(file, made.status());
    return false;
  }
  connection->region_id = made->id;
  RegionReply reply;
  made->id.copy(reply.region_id, sizeof(reply.region_id));
  return SendReply(file, reply, &made->file);
}

}  // namespace

absl::Status CheckOvercommit(absl::string_view overcommit_memory) {
  if (!absl::StartsWith(overcommit_memory, "2")) return absl::OkStatus();
  return FailedPrecondition(
      Reason::kUnsupported, "--regions_listen",
      "vm.overcommit_memory = 2, under which a client could have the server "
      "killed",
      "0 or 1");
}

absl::StatusOr<std::unique_ptr<RegionListener>> RegionListener::Start(
    const RegionListenerOptions& options, RegionRegistry* registry) {
  std::ifstream setting("/proc/sys/vm/overcommit_memory");
  RETURN_IF_ERROR(CheckOvercommit(
      std::string(std::istreambuf_iterator<char>(setting), {})));
  FileDescriptor stop(eventfd(0, EFD_CLOEXEC));
  if (!stop.ok()) return CannotListen(options.path, std::strerror(errno));
  ASSIGN_OR_RETURN(FileDescriptor socket, Listen(options.path));
  return std::make_unique<PollingListener>(options, registry, std::move(socket),
                                           std::move(stop));
}

}  // namespace convgrad
