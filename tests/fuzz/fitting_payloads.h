// `FitPayloads` adds payloads of the right sizes to requests.
#pragma once

#include "google/protobuf/message.h"

namespace convgrad::fuzz {

// Gives each inline tensor in `*request` a payload of its own, of the size that
// it needs. Invalid or large tensors get an empty payload.
void FitPayloads(google::protobuf::Message* request);

}  // namespace convgrad::fuzz
