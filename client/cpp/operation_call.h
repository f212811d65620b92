// `OperationCall` is what a client asks for; `OperationReply` is the answer.
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

// One operation and the bytes that it reads.
struct OperationCall {
  ConvOperation operation;
  // Operand bytes, indexed by Operand: exactly ByteSize(descriptor) bytes for
  // each operand of the operation. gRPC sends them without a copy. Operands in
  // `region` aren't sent.
  std::array<absl::Span<const std::byte>, kOperandCount> operands = {};
  // Memory for the results, in the order of operation.results: exactly
  // ByteSize(descriptor) bytes that overlap no operand and no other result. The
  // contents are undefined if the call fails. The server itself writes results
  // that lie in `region`. For a missing entry or a null span the reply owns the
  // result.
  std::vector<absl::Span<std::byte>> destinations;
  // Region of the called server; must outlive the call. Null: no shared memory.
  // Don't touch its tensors during the call nor, if the call failed, before its
  // deadline: the server may still be using them. So a call with results there
  // isn't repeated if its connection is lost, except a session's changes.
  const SharedRegion* region = nullptr;
  // Only for Session::Run: names of kept tensors, indexed by Operand. "" for an
  // operand whose bytes are in `operands`.
  std::array<std::string, kOperandCount> kept_operands;
  // Only for Session::Run: names under which the session keeps results, in the
  // order of operation.results. For a missing entry or nullopt the call returns
  // the bytes.
  std::vector<std::optional<KeptResult>> kept_results;
  // "" selects automatically; otherwise one of BackendNames.
  std::string backend;
  // About 16 bytes that identify repeats of the call; generated if empty.
  std::string request_id;
  bool deterministic = true;
  // Ask the server to check the results, and to count Inf and NaN elements. The
  // report contains both.
  bool self_check = false;
  bool count_nonfinite = false;
  // W3C trace context of the span that the call belongs to; empty: none.
  std::string traceparent;
  // "batch" or "interactive", which the server runs first; empty: batch.
  std::string priority;
  // The server's default applies if the caller sets none.
  absl::Time deadline = absl::InfiniteFuture();
};

// One result of a call.
struct OperationResult {
  Result which;
  TensorDescriptor descriptor;  // as asked for
  // Empty if the call named a destination or the session keeps the result.
  AlignedBuffer data;
  // The result in `data` or in the call's destination; null if it is kept.
  absl::Span<const std::byte> bytes;
};

// The results of a call, and how the server computed them.
struct OperationReply {
  std::vector<OperationResult> results;  // in the order asked for
  v1::Report report;
  absl::Duration elapsed;  // of the whole call, measured here
  int64_t sent_bytes = 0;  // messages, without gRPC's framing
  int64_t received_bytes = 0;
  int64_t region_bytes = 0;  // of tensors in the call's region
};

}  // namespace convgrad
