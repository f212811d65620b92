// Implements ActivityText: the output of `convgrad top`.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cpp/command_line/activity/server_activity.h"
#include "nlohmann/json.hpp"

namespace convgrad {
namespace {

using Json = nlohmann::ordered_json;

double Number(const Json& object, const char* name) {
  return object.at(name).get<double>();
}

double Megabytes(const Json& object, const char* name) {
  return Number(object, name) / 1e6;
}

std::string Text(const Json& object, const char* name) {
  return object.at(name).get<std::string>();
}

// Returns milliseconds, "-" for NaN.
std::string Milliseconds(const Json& object, const char* name) {
  const double seconds = Number(object, name);
  return std::isnan(seconds) ? "-" : absl::StrFormat("%.3f", seconds * 1e3);
}

std::string TotalsText(const Json& activity) {
  const double hits = Number(activity, "plan_hit_share");
  return absl::StrFormat(
      "over %.1f s: %.1f MB/s received, %.1f MB/s sent, %.1f refused a second\n"
      "jobs %.0f waiting, %.0f running; %.0f calls wait for memory\n"
      "memory %.1f of %.1f MB; %.0f plans in %.1f MB, %s hits\n"
      "sessions %.0f, with %.0f tensors, %.0f programs and %.0f tapes (%.1f "
      "MB) in %.1f of %.1f MB\n",
      Number(activity, "seconds"),
      Megabytes(activity, "received_bytes_per_second"),
      Megabytes(activity, "sent_bytes_per_second"),
      Number(activity, "rejections_per_second"),
      Number(activity, "jobs_waiting"), Number(activity, "jobs_running"),
      Number(activity, "calls_waiting_for_memory"),
      Megabytes(activity, "memory_bytes"),
      Megabytes(activity, "memory_capacity_bytes"), Number(activity, "plans"),
      Megabytes(activity, "plan_bytes"),
      std::isnan(hits) ? "no" : absl::StrFormat("%.1f %%", 100 * hits),
      Number(activity, "sessions"), Number(activity, "kept_tensors"),
      Number(activity, "kept_programs"), Number(activity, "kept_tapes"),
      Megabytes(activity, "kept_tape_bytes"), Megabytes(activity, "kept_bytes"),
      Megabytes(activity, "kept_capacity_bytes"));
}

}  // namespace

std::string ActivityText(const Json& activity) {
  std::string text = TotalsText(activity);
  absl::StrAppend(
      &text,
      "\nmethod                   calls/s  errors/s    p50 ms    p99 ms\n");
  for (const Json& method : activity.at("methods")) {
    const double rate = Number(method, "calls_per_second");
    if (rate == 0) continue;
    absl::StrAppendFormat(&text, "%-22s %9.1f %9.1f %9s %9s\n",
                          Text(method, "method"), rate,
                          Number(method, "errors_per_second"),
                          Milliseconds(method, "p50_seconds"),
                          Milliseconds(method, "p99_seconds"));
  }
  absl::StrAppend(
      &text,
      "\nop        backend    dtype     ops/s   GFLOP/s  queue p99  "
      "compute p50  compute p99 ms\n");
  for (const Json& operation : activity.at("operations")) {
    const double rate = Number(operation, "operations_per_second");
    if (rate == 0) continue;
    absl::StrAppendFormat(&text, "%-9s %-10s %-5s %9.1f %9.1f %10s %12s %12s\n",
                          Text(operation, "op"), Text(operation, "backend"),
                          Text(operation, "dtype"), rate,
                          Number(operation, "gflops_per_second"),
                          Milliseconds(operation, "queue_p99_seconds"),
                          Milliseconds(operation, "compute_p50_seconds"),
                          Milliseconds(operation, "compute_p99_seconds"));
  }
  std::string steps;
  for (const Json& step : activity.at("steps")) {
    const double busy = Number(step, "busy_seconds_per_second");
    if (busy == 0) continue;
    absl::StrAppendFormat(&steps, "%-27s %-10s %6.1f\n", Text(step, "step"),
                          Text(step, "backend"), 1e3 * busy);
  }
  if (steps.empty()) return text;
  return absl::StrCat(text, "\nstep of networks            backend    ms/s\n",
                      steps);
}

}  // namespace convgrad
