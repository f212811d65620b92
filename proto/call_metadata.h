// These constants are the keys of gRPC metadata that calls and their answers
// use.
#pragma once

namespace convgrad {

// The request's length in bytes. The server reads it before the request and
// reserves memory for this length instead of the largest message.
inline constexpr char kRequestBytesKey[] = "convgrad-request-bytes";

// Priority of the call: "batch" (the default) or "interactive".
inline constexpr char kPriorityKey[] = "convgrad-priority";

// The call's session and the number of its change; session.proto defines their
// meaning.
inline constexpr char kSessionKey[] = "convgrad-session-bin";
inline constexpr char kAfterKey[] = "convgrad-session-after";
inline constexpr char kAttachedKey[] = "convgrad-session-attached";
inline constexpr char kEpochKey[] = "convgrad-session-epoch";
inline constexpr char kSequenceKey[] = "convgrad-session-sequence";
inline constexpr char kCallIdKey[] = "convgrad-call-id-bin";
inline constexpr char kAcknowledgedKey[] = "convgrad-session-acknowledged";

// Trailer: number of the session's last committed change.
inline constexpr char kNumberTrailer[] = "convgrad-session-number";

// Trailer: number of the newest state of a durable session that is on disk.
inline constexpr char kDurableNumberTrailer[] = "convgrad-durable-number";

// Trailer: serialized v1::ErrorDetail of an error.
inline constexpr char kErrorTrailer[] = "convgrad-error-bin";

// Trailer: milliseconds after which the client may retry a refused call (gRFC
// A6).
inline constexpr char kPushbackTrailer[] = "grpc-retry-pushback-ms";

}  // namespace convgrad
