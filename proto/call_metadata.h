// What a call and its answer say beside their messages: keys of gRPC's
// metadata.
#pragma once

namespace convgrad {

// The request's length in bytes, told before the server reads it: the call is
// admitted with memory for that, not for the largest message.
inline constexpr char kRequestBytesKey[] = "convgrad-request-bytes";

// How urgent the call is: "batch" (the default) or "interactive".
inline constexpr char kPriorityKey[] = "convgrad-priority";

// Which session a call belongs to, and which change of it the call is:
// session.proto says what each means.
inline constexpr char kSessionKey[] = "convgrad-session-bin";
inline constexpr char kAfterKey[] = "convgrad-session-after";
inline constexpr char kAttachedKey[] = "convgrad-session-attached";
inline constexpr char kEpochKey[] = "convgrad-session-epoch";
inline constexpr char kSequenceKey[] = "convgrad-session-sequence";
inline constexpr char kCallIdKey[] = "convgrad-call-id-bin";
inline constexpr char kAcknowledgedKey[] = "convgrad-session-acknowledged";

// Trailer: the number of the session's last committed change.
inline constexpr char kNumberTrailer[] = "convgrad-session-number";

// Trailer: the serialised v1::ErrorDetail of an error.
inline constexpr char kErrorTrailer[] = "convgrad-error-bin";

// Trailer: in how many milliseconds a call that was refused may come again
// (gRFC A6).
inline constexpr char kPushbackTrailer[] = "grpc-retry-pushback-ms";

}  // namespace convgrad
