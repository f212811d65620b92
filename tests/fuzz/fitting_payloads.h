// Gives requests payloads of the sizes that they name.
#pragma once

#include "google/protobuf/message.h"

namespace convgrad::fuzz {

// Gives each tensor in `*request` that is inline a payload of its own, of the
// size that it needs. Tensors that are invalid or large get an empty one.
void FitPayloads(google::protobuf::Message* request);

}  // namespace convgrad::fuzz
