// `KeptResults` makes places for the tensors that a change of a session writes.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "server/memory/tensor_place.h"
#include "server/rpc/calls/call_session.h"

namespace convgrad {

// Each tensor has memory of its own until the change is committed. Owned by one
// call.
class KeptResults {
 public:
  // `*paid` pays first, as in KeptMemory::Take; both outlive this. Requires of
  // what follows: session->is_change().
  KeptResults(CallSession* session, Reservation* paid)
      : session_(*session), paid_(*paid) {}

  // Returns the place of the new version of the tensor `name`.
  // Errors: kResourceExhausted.
  absl::StatusOr<TensorPlace> Write(const std::string& name,
                                    const TensorDescriptor& descriptor);
  // Likewise; what the operation computes is added to the old version, if there
  // is one. `path` names it in errors. Requires: f32.
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
