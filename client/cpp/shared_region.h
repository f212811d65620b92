// Memory shared with a server on the same host: tensors that lie there aren't
// sent, and results come there by themselves.
#pragma once

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
  // Gets `byte_length` zeros from the server whose side socket is at `address`,
  // "unix:PATH" (GetCapabilities says where, --regions_listen). They are the
  // server's only as long as this object lives. Waits at most a minute.
  // Errors: kInvalidArgument for an address that is none; kUnavailable if
  // nobody listens there; the server's; kInternal for a reply that makes no
  // sense.
  static absl::StatusOr<std::unique_ptr<SharedRegion>> Connect(
      const std::string& address, int64_t byte_length);
  // Ends the region: calls that name it are refused from then on.
  ~SharedRegion();

  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  // All of it. Aligned to a memory page.
  absl::Span<std::byte> bytes() const { return bytes_; }

  // Takes the next `size` bytes, aligned to 64, as a tensor needs to be to be
  // used without a copy. Requires: size >= 0.
  // Errors: kResourceExhausted if there aren't so many left.
  absl::StatusOr<absl::Span<std::byte>> Allocate(int64_t size);
  // Makes all bytes free again.
  void Reset() { allocated_ = 0; }
  // Returns the bytes that Allocate(size) takes, so that regions can be made to
  // measure.
  static int64_t AllocatedBytes(int64_t size);

  // Returns where `tensor` lies in the region, nullopt if it doesn't, or not
  // wholly.
  std::optional<RegionRange> RangeOf(absl::Span<const std::byte> tensor) const;

 private:
  SharedRegion(FileDescriptor connection, std::string id,
               absl::Span<std::byte> bytes);

  const FileDescriptor connection_;
  const std::string id_;
  const absl::Span<std::byte> bytes_;
  int64_t allocated_ = 0;
};

}  // namespace convgrad
