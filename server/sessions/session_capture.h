// `SessionCapture` is a session after one change, as a snapshot stores it.
#pragma once

#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "server/sessions/change_order.h"
#include "server/sessions/kept_state.h"

namespace convgrad {

// Value type.
struct SessionCapture {
  // Has no tapes.
  std::shared_ptr<const KeptState> state;
  ChangeOrder::Epochs epochs;
  std::vector<ChangeOrder::Unacknowledged> replies;
  // Later changes came after this time.
  absl::Time taken;
};

}  // namespace convgrad
