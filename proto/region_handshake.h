// What a client and the server say on the side socket that passes shared memory
// (gRPC can't carry file descriptors). The client connects, sends one request
// and gets one reply; with a reply of status 0 comes, as SCM_RIGHTS, the
// descriptor of `byte_length` bytes to map. The region then lives as long as
// the connection: closing it, or sending anything more, ends it.
//
// Little-endian, of fixed size, without padding.
#pragma once

#include <bit>
#include <cstdint>

#include "proto/region_places.h"

namespace convgrad {

// "CGREGIO1", as the bytes lie.
inline constexpr uint64_t kRegionMagic = 0x314f494745524743;

struct RegionRequest {
  uint64_t magic = kRegionMagic;
  int64_t byte_length = 0;  // at least 1
};

struct RegionReply {
  uint64_t magic = kRegionMagic;
  uint32_t status = 0;  // a gRPC status code
  uint32_t reserved = 0;
  char region_id[kRegionIdBytes] = {};  // 0 unless the status is 0
  // What was wrong: text, ended by a 0.
  char message[224] = {};
};

static_assert(std::endian::native == std::endian::little);
static_assert(sizeof(RegionRequest) == 16);
static_assert(sizeof(RegionReply) == 256);

}  // namespace convgrad
