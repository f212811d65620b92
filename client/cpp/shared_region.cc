#include "client/cpp/shared_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "proto/region_handshake.h"

namespace convgrad {
namespace {

constexpr int64_t kAlignment = 64;

// Bounds the wait if another program listens at the socket. A server zeroes
// gigabytes per second, so 60 s suffice.
constexpr timeval kReplyTimeout = {60, 0};

absl::Status Failed(absl::StatusCode code, const std::string& address,
                    absl::string_view what) {
  return MakeError(code,
                   {Reason::kInternal, absl::StrCat("region at ", address),
                    absl::StrCat(what, ": ", std::strerror(errno)), "memory"});
}

absl::StatusOr<FileDescriptor> ConnectTo(const std::string& address) {
  absl::string_view path = address;
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  if (!absl::ConsumePrefix(&path, "unix:") || path.empty() ||
      path.size() >= sizeof(name.sun_path)) {
    return OutOfRange("region address", absl::StrCat("\"", address, "\""),
                      "unix:PATH of a server's --regions_listen");
  }
  path.copy(name.sun_path, path.size());
  // A blocking connect() would wait without limit while the queue of a server
  // that accepts no connections is full.
  FileDescriptor connection(
      socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &kReplyTimeout,
             sizeof(kReplyTimeout));
  if (connect(connection.get(), reinterpret_cast<const sockaddr*>(&name),
              sizeof(name)) != 0) {
    return Failed(absl::StatusCode::kUnavailable, address, "connect");
  }
  fcntl(connection.get(), F_SETFL, 0);
  return connection;
}

// Receives the reply into `*reply` and returns the file descriptor sent with
// it, -1 if there is none.
absl::StatusOr<FileDescriptor> ReceiveReply(const FileDescriptor& connection,
                                            const std::string& address,
                                            RegionReply* reply) {
  iovec bytes = {reply, sizeof(*reply)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message = {};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t size;
  do {
    size = recvmsg(connection.get(), &message, MSG_WAITALL | MSG_CMSG_CLOEXEC);
  } while (size < 0 && errno == EINTR);
  int file = -1;
  const cmsghdr* header = size > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    std::memcpy(&file, CMSG_DATA(header), sizeof(file));
  }
  FileDescriptor received(file);
  if (size != static_cast<ssize_t>(sizeof(*reply)) ||
      reply->magic != kRegionMagic) {
    return Failed(absl::StatusCode::kInternal, address, "no reply");
  }
  return received;
}

// Maps the memory. Checks its seal, so that the server can't shrink it later.
absl::StatusOr<absl::Span<std::byte>> Map(const FileDescriptor& memory,
                                          const std::string& address,
                                          int64_t byte_length) {
  struct stat status = {};
  const int seals = fcntl(memory.get(), F_GET_SEALS);  // -1: not of memory
  if (fstat(memory.get(), &status) != 0 || status.st_size != byte_length ||
      seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return Failed(absl::StatusCode::kInternal, address,
                  "memory of another size, or not sealed");
  }
  void* mapping = mmap(nullptr, byte_length, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_POPULATE, memory.get(), 0);
  if (mapping == MAP_FAILED) {
    return Failed(absl::StatusCode::kResourceExhausted, address, "mmap");
  }
  return absl::MakeSpan(static_cast<std::byte*>(mapping),
                        static_cast<size_t>(byte_length));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedRegion>> SharedRegion::Connect(
    const std::string& address, int64_t byte_length) {
  ASSIGN_OR_RETURN(FileDescriptor connection, ConnectTo(address));
  const RegionRequest request{kRegionMagic, byte_length};
  // Ignores errors: a server that refuses before it has read the request has
  // already sent its reply.
  send(connection.get(), &request, sizeof(request), MSG_NOSIGNAL);
  RegionReply reply;
  ASSIGN_OR_RETURN(const FileDescriptor memory,
                   ReceiveReply(connection, address, &reply));
  if (reply.status != 0) {
    reply.message[sizeof(reply.message) - 1] = '\0';
    return absl::Status(static_cast<absl::StatusCode>(reply.status),
                        reply.message);
  }
  ASSIGN_OR_RETURN(const absl::Span<std::byte> bytes,
                   Map(memory, address, byte_length));
  return std::unique_ptr<SharedRegion>(new SharedRegion(
      std::move(connection),
      std::string(reply.region_id, sizeof(reply.region_id)), bytes));
}

SharedRegion::SharedRegion(FileDescriptor connection, std::string id,
                           absl::Span<std::byte> bytes)
    : connection_(std::move(connection)), id_(std::move(id)), bytes_(bytes) {}

SharedRegion::~SharedRegion() {
  // A process that was forked since has a copy of the connection.
  if (getpid() == owner_) shutdown(connection_.get(), SHUT_RDWR);
  munmap(bytes_.data(), bytes_.size());
}

int64_t SharedRegion::AllocatedBytes(int64_t size) {
  return (size + kAlignment - 1) / kAlignment * kAlignment;
}

absl::StatusOr<absl::Span<std::byte>> SharedRegion::Allocate(int64_t size) {
  const auto left = std::ssize(bytes_) - allocated_;
  if (size > left) {
    return LimitExceeded("shared region", absl::StrCat(size, " bytes wanted"),
                         absl::StrCat("at most the ", left, " left"));
  }
  const absl::Span<std::byte> taken = bytes_.subspan(allocated_, size);
  // The end of the region may cut off the last tensor's padding.
  allocated_ += std::min(left, AllocatedBytes(size));
  return taken;
}

std::optional<RegionRange> SharedRegion::RangeOf(
    absl::Span<const std::byte> tensor) const {
  // Only std::less_equal orders pointers into different objects.
  const std::less_equal<const std::byte*> not_after;
  if (!not_after(bytes_.data(), tensor.data()) ||
      !not_after(tensor.data() + tensor.size(),
                 bytes_.data() + bytes_.size())) {
    return std::nullopt;
  }
  return RegionRange{id_, tensor.data() - bytes_.data(), std::ssize(tensor)};
}

}  // namespace convgrad
