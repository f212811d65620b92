// These structs are the messages on the side socket that passes shared memory,
// because gRPC can't carry file descriptors. The client connects, sends one
// request and receives one reply. A reply of status 0 carries, as SCM_RIGHTS,
// the descriptor of `byte_length` bytes to map. The region exists as long as
// the connection: closing the connection, or sending anything more, ends the
// region.
//
// Layout: little-endian, fixed size, without padding.
#pragma once

#include <bit>
#include <cstdint>

#include "proto/region_places.h"

namespace convgrad {

// The bytes "CGREGIO1".
inline constexpr uint64_t kRegionMagic = 0x314f494745524743;

struct RegionRequest {
  uint64_t magic = kRegionMagic;
  int64_t byte_length = 0;  // at least 1
};

struct RegionReply {
  uint64_t magic = kRegionMagic;
  uint32_t status = 0;  // a gRPC status code
  uint32_t reserved = 0;
  char region_id[kRegionIdBytes] = {};  // 0 unless status is 0
  // Error message, ended by a 0.
  char message[224] = {};
};

static_assert(std::endian::native == std::endian::little);
static_assert(sizeof(RegionRequest) == 16);
static_assert(sizeof(RegionReply) == 256);

}  // namespace convgrad
