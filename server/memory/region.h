// `Region` is memory that the server shares with one client on its host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "proto/file_descriptor.h"
#include "server/memory/reservation.h"

namespace convgrad {

class Region;

struct NewRegion {
  std::shared_ptr<const Region> region;
  // The descriptor for the client. The region doesn't need it.
  FileDescriptor file;
};

// The mapping stays readable and writable whatever the client does with its
// descriptor. The client may change the bytes at any time, so no address may
// depend on them: the server copies indices first
// (TensorPlace::is_readable_as). server/memory/regions.md lists all reads.
//
// Thread-safe: immutable except for its bytes.
class Region {
 public:
  // Returns `byte_length` zeros. The region keeps `reservation`, of at least
  // ReservedBytes(byte_length). Requires: 1 <= byte_length < 2^60.
  // Errors: kResourceExhausted, reason BUSY, if the system has no memory or no
  // descriptor.
  static absl::StatusOr<NewRegion> Create(int64_t byte_length,
                                          Reservation reservation);

  // Returns the memory to the system. A client that still maps it reads zeros.
  ~Region();

  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  // Returns `byte_length` rounded up to whole memory pages.
  static int64_t ReservedBytes(int64_t byte_length);

  // Aligned to a memory page.
  std::byte* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  Region(std::byte* data, int64_t size, Reservation reservation);

  std::byte* const data_;
  const int64_t size_;
  const Reservation reservation_;
};

}  // namespace convgrad
