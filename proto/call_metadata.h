// What a call says of itself beside its message, which a server may have to
// wait for: keys of gRPC's metadata.
#pragma once

namespace convgrad {

// The message's length in bytes: the call is admitted with memory for that, not
// for the largest message.
inline constexpr char kRequestBytesKey[] = "convgrad-request-bytes";

// How urgent it is: "batch" (the default) or "interactive".
inline constexpr char kPriorityKey[] = "convgrad-priority";

}  // namespace convgrad
