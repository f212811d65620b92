// `ForEachSimdTarget` runs a check with every instruction set that this CPU and
// the build support.
#pragma once

#include <cstdint>

#include "gtest/gtest.h"
#include "hwy/highway.h"

namespace convgrad {

template <typename Body>
void ForEachSimdTarget(const Body& body) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    body();
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
}

}  // namespace convgrad
