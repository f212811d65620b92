// What a client is asked for, and what it answers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "backends/core/convolution/conv_operation.h"
#include "client/cpp/aligned_buffer.h"
#include "client/cpp/shared_region.h"
#include "convgrad/v1/service.pb.h"
#include "proto/codec/kept_tensors.h"

namespace convgrad {

// One operation and the bytes it reads.
struct OperationCall {
  ConvOperation operation;
  // Indexed by Operand: exactly ByteSize(descriptor) bytes where the operation
  // has that operand. Sent from where they lie, without a copy; those in
  // `region` aren't sent at all.
  std::array<absl::Span<const std::byte>, kOperandCount> operands = {};
  // Where results go, in the order of operation.results: exactly
  // ByteSize(descriptor) bytes, overlapping no operand and no other result;
  // undefined if the call fails. What lies in `region` is written there by the
  // server. None (missing, or a null span) for a buffer of the reply.
  std::vector<absl::Span<std::byte>> destinations;
  // Of the server that is called; outlives the call. Its tensors mustn't be
  // touched during the call, nor, where that failed, before its time is up: the
  // server may still be at work on them. Null: no shared memory.
  const SharedRegion* region = nullptr;
  // Of Session::Run alone. Indexed by Operand: the names of kept tensors; ""
  // for those whose bytes are in `operands`.
  std::array<std::string, kOperandCount> kept_operands;
  // Likewise, in the order of operation.results: which results the session
  // keeps, under what name. Missing, or nullopt: the call returns the bytes.
  std::vector<std::optional<KeptResult>> kept_results;
  // "" is auto, otherwise a backend's name as BackendNames has it.
  std::string backend;
  // Some 16 bytes by which repeats are told; made if empty.
  std::string request_id;
  bool deterministic = true;
  // Ask the server to check the results, and to count Inf and NaN; both come
  // with the report.
  bool self_check = false;
  bool count_nonfinite = false;
  // W3C's trace context of the span that the call belongs to; empty: none.
  std::string traceparent;
  // "batch" or "interactive", which goes first; empty: batch.
  std::string priority;
  // Without one the server's default holds.
  absl::Time deadline = absl::InfiniteFuture();
};

struct OperationResult {
  Result which;
  TensorDescriptor descriptor;  // as asked for
  // Empty if the call named a destination, or the result is kept.
  AlignedBuffer data;
  // The result, in `data` or in the call's destination; null if it is kept.
  absl::Span<const std::byte> bytes;
};

struct OperationReply {
  std::vector<OperationResult> results;  // in the order asked for
  v1::Report report;
  absl::Duration elapsed;  // of the whole call, as the caller saw it
  int64_t sent_bytes = 0;  // messages, without gRPC's framing
  int64_t received_bytes = 0;
  int64_t region_bytes = 0;  // of tensors in the call's region
};

}  // namespace convgrad
