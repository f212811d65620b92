#include "server/warmer.h"

#include <utility>

namespace convgrad {

Warmer::Warmer(const std::vector<RegisteredBackend>* backends, int threads,
               PlanCache* plans)
    : backends_(backends),
      threads_(threads),
      plans_(plans),
      thread_(absl::Hours(1), [] {}) {}

void Warmer::Post(
    WarmupWork work, std::function<bool()> give_up,
    std::function<void(const absl::StatusOr<WarmupOutcome>&)> done) {
  thread_.Post([this, work = std::move(work), give_up = std::move(give_up),
                done = std::move(done)] {
    done(WarmUp(work, *backends_, threads_, plans_,
                [&] { return stopping_ || give_up(); }));
  });
}

}  // namespace convgrad
