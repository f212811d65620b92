#include "server/machine/openmp_spinning.h"

#include <unistd.h>

#include <climits>
#include <cstdlib>

namespace convgrad {
namespace {

// Some 50 us on current CPUs. The pauses between the loops of one operation are
// shorter, and the pause after an operation is longer.
constexpr char kSpinCount[] = "5000";

}  // namespace

void LimitOpenMpSpinning(char** arguments) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr ||
      std::getenv("GOMP_SPINCOUNT") != nullptr) {
    return;
  }
  setenv("GOMP_SPINCOUNT", kSpinCount, 1);
  // Uses the program's path, because /proc/self/exe would become the name of
  // the process.
  char program[PATH_MAX];
  const ssize_t length =
      readlink("/proc/self/exe", program, sizeof(program) - 1);
  if (length <= 0) return;
  program[length] = '\0';
  execv(program, arguments);  // Returns only on failure.
}

}  // namespace convgrad
