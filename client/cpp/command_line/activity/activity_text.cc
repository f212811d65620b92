#include "client/cpp/command_line/activity/activity_text.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace convgrad {
namespace {

double Megabytes(double bytes) { return bytes / 1e6; }

// Returns milliseconds, "-" for NaN.
std::string Milliseconds(double seconds) {
  return std::isnan(seconds) ? "-" : absl::StrFormat("%.3f", seconds * 1e3);
}

// Returns "" if no network has run.
std::string StepsText(const std::vector<StepActivity>& steps) {
  std::string text;
  for (const StepActivity& step : steps) {
    if (step.busy == 0) continue;
    if (text.empty()) {
      text = "\nstep of networks            backend    ms/s\n";
    }
    absl::StrAppendFormat(&text, "%-27s %-10s %6.1f\n", step.step, step.backend,
                          1e3 * step.busy);
  }
  return text;
}

}  // namespace

std::string TextOf(const ServerActivity& activity) {
  std::string text = absl::StrFormat(
      "over %.1f s: %.1f MB/s received, %.1f MB/s sent, %.1f refused a second\n"
      "jobs %.0f waiting, %.0f running; %.0f calls wait for memory\n"
      "memory %.1f of %.1f MB; %.0f plans in %.1f MB, %s hits\n"
      "sessions %.0f, with %.0f tensors, %.0f programs and %.0f tapes (%.1f "
      "MB) "
      "in %.1f of %.1f MB\n\n",
      absl::ToDoubleSeconds(activity.elapsed),
      Megabytes(activity.received_rate), Megabytes(activity.sent_rate),
      activity.rejection_rate, activity.queued, activity.running,
      activity.waiting_for_memory, Megabytes(activity.memory_bytes),
      Megabytes(activity.memory_capacity_bytes), activity.plans,
      Megabytes(activity.plan_bytes),
      std::isnan(activity.plan_hits)
          ? "no"
          : absl::StrFormat("%.1f %%", 100 * activity.plan_hits),
      activity.sessions, activity.kept_tensors, activity.kept_programs,
      activity.kept_tapes, Megabytes(activity.kept_tape_bytes),
      Megabytes(activity.kept_bytes), Megabytes(activity.kept_capacity_bytes));
  absl::StrAppend(
      &text,
      "method                   calls/s  errors/s    p50 ms    p99 ms\n");
  for (const MethodActivity& method : activity.methods) {
    if (method.rate == 0) continue;
    absl::StrAppendFormat(&text, "%-22s %9.1f %9.1f %9s %9s\n", method.method,
                          method.rate, method.error_rate,
                          Milliseconds(method.p50), Milliseconds(method.p99));
  }
  absl::StrAppend(
      &text,
      "\nop        backend    dtype     ops/s   GFLOP/s  queue p99  "
      "compute p50  compute p99 ms\n");
  for (const OperationActivity& operation : activity.operations) {
    if (operation.rate == 0) continue;
    absl::StrAppendFormat(&text, "%-9s %-10s %-5s %9.1f %9.1f %10s %12s %12s\n",
                          operation.op, operation.backend, operation.dtype,
                          operation.rate, operation.gflops_per_second,
                          Milliseconds(operation.queue_p99),
                          Milliseconds(operation.compute_p50),
                          Milliseconds(operation.compute_p99));
  }
  return text + StepsText(activity.steps);
}

}  // namespace convgrad
