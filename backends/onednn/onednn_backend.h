// `MakeOnednnBackend` makes the CPU backend, which uses oneDNN 3.2 or later.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backends/core/backend.h"

namespace convgrad {

// Returns the backend. Its plans run on the calling thread's OpenMP team, so
// use it from a fixed set of threads. Errors: kFailedPrecondition if the
// library is older than 3.2.
absl::StatusOr<std::unique_ptr<Backend>> MakeOnednnBackend();

// Returns a backend for tests and measurements. If `native_bf16`, it computes
// bf16 with the CPU's bf16 instructions or the library's emulation of them,
// even if f32 would be faster; otherwise always in f32. If the library has no
// bf16, it uses f32. Activations of bf16 networks are in channels last if
// `bf16_channels_last`, else in blocks.
absl::StatusOr<std::unique_ptr<Backend>> MakeOnednnBackend(
    bool native_bf16, bool bf16_channels_last = false);

}  // namespace convgrad
