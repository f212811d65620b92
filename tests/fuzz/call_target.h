// `TargetOf` finds the method and the request of a call that session_fuzz
// makes.
#pragma once

#include <memory>
#include <string>

#include "google/protobuf/message.h"
#include "tests/fuzz/inputs.pb.h"

namespace convgrad::fuzz {

// A request, and whether it is a change.
struct Target {
  std::string path;
  std::unique_ptr<google::protobuf::Message> request;
  bool is_change = false;
};

// Returns the target of a unary call that isn't about sessions themselves;
// ListSessions if `call` has no request.
Target TargetOf(const Calls::Call& call);

}  // namespace convgrad::fuzz
