// `SharedRegion` is memory shared with a server on the same host. A client
// doesn't send tensors that lie there, and the server writes results there
// directly.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/file_descriptor.h"
#include "proto/region_places.h"

namespace convgrad {

// Thread-compatible; different threads may use different bytes of it.
class SharedRegion {
 public:
  // Requests `byte_length` zeroed bytes from the server whose side socket is at
  // `address`, "unix:PATH" (--regions_listen; GetCapabilities reports it). The
  // server uses them only while this object exists. Blocks for at most a
  // minute.
  // Errors: kInvalidArgument for a malformed address; kUnavailable if no server
  // listens there; the server's; kInternal for a malformed reply.
  static absl::StatusOr<std::unique_ptr<SharedRegion>> Connect(
      const std::string& address, int64_t byte_length);
  // Ends the region: the server refuses later calls that name it. In a process
  // that was forked since Connect, ends only that process's copy.
  ~SharedRegion();

  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  // The whole region, aligned to a memory page.
  absl::Span<std::byte> bytes() const { return bytes_; }

  // Takes the next `size` bytes, aligned to 64 bytes so that the server can use
  // a tensor there without a copy. Requires: size >= 0.
  // Errors: kResourceExhausted if fewer bytes are left.
  absl::StatusOr<absl::Span<std::byte>> Allocate(int64_t size);
  // Frees all bytes.
  void Reset() { allocated_ = 0; }
  // Returns how many bytes Allocate(size) takes, to compute a region's size.
  static int64_t AllocatedBytes(int64_t size);

  // Returns the range of `tensor` in the region; nullopt unless all of it lies
  // there.
  std::optional<RegionRange> RangeOf(absl::Span<const std::byte> tensor) const;

 private:
  SharedRegion(FileDescriptor connection, std::string id,
               absl::Span<std::byte> bytes);

  const pid_t owner_ = getpid();  // the process that connected
  const FileDescriptor connection_;
  const std::string id_;
  const absl::Span<std::byte> bytes_;
  int64_t allocated_ = 0;
};

}  // namespace convgrad
