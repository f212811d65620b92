// `KeptResults` makes places for the tensors that a change of a session writes.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "server/memory/tensor_place.h"
#include "server/rpc/calls/call_session.h"

namespace convgrad {

// Each tensor has its own memory until the change is committed. Owned by one
// call.
class KeptResults {
 public:
  // `*paid` pays first, as in KeptMemory::Take; both pointers outlive this.
  // Requires for Write and Add: session->is_change().
  KeptResults(CallSession* session, Reservation* paid)
      : session_(*session), paid_(*paid) {}

  // Returns the place of the new version of the tensor `name`.
  // Errors: kResourceExhausted.
  absl::StatusOr<TensorPlace> Write(const std::string& name,
                                    const TensorDescriptor& descriptor);
  // As Write, for a sum: the result is the old version, if there is one, plus
  // the tensor that the operation computes. `path` names the tensor in errors.
  // Requires: f32.
  // Errors: those of Write; kInvalidArgument if the old version has other dims
  // or another layout.
  absl::StatusOr<TensorPlace> Add(const std::string& name,
                                  const TensorDescriptor& descriptor,
                                  const std::string& path);

 private:
  CallSession& session_;
  Reservation& paid_;
};

}  // namespace convgrad
