#include "client/cpp/command_line/activity/server_activity.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"

namespace convgrad {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

class Difference {
 public:
  Difference(const MetricsText& before, const MetricsText& after,
             absl::Duration elapsed)
      : before_(before),
        after_(after),
        seconds_(absl::ToDoubleSeconds(elapsed)) {}

  // Returns a counter's increase. A counter that decreased was restarted from
  // 0.
  double Growth(const std::string& counter, const Labels& labels) const {
    const double now = after_.Sum(counter, labels);
    const double then = before_.Sum(counter, labels);
    return now >= then ? now - then : now;
  }
  double Rate(const std::string& counter, const Labels& labels = {}) const {
    return Growth(counter, labels) / seconds_;
  }

  // Returns the histogram's quantile by the formula of Prometheus'
  // histogram_quantile: linear within a bucket. NaN without observations.
  double Quantile(const std::string& histogram, Labels labels,
                  double quantile) const {
    const std::string buckets = histogram + "_bucket";
    std::map<double, std::string> bounds;  // sorted; texts as in the sample
    for (const auto& sample : after_.Family(buckets)) {
      const auto le = sample.labels.find("le");
      double bound;
      if (le == sample.labels.end()) continue;
      if (absl::SimpleAtod(le->second, &bound)) bounds[bound] = le->second;
    }
    std::vector<std::pair<double, double>> cumulative;
    for (const auto& [bound, text] : bounds) {
      labels["le"] = text;
      cumulative.emplace_back(bound, Growth(buckets, labels));
    }
    if (cumulative.empty() || cumulative.back().second <= 0) return kNone;
    const double rank = quantile * cumulative.back().second;
    double lower_bound = 0, below = 0;
    for (const auto& [bound, count] : cumulative) {
      if (count >= rank) {
        if (std::isinf(bound)) break;
        return lower_bound +
               (bound - lower_bound) * (rank - below) / (count - below);
      }
      lower_bound = bound;
      below = count;
    }
    return lower_bound;
  }

 private:
  const MetricsText& before_;
  const MetricsText& after_;
  const double seconds_;
};

// Returns the values of `labels` among the counter's nonzero samples.
std::set<Labels> KindsOf(const MetricsText& metrics, const std::string& counter,
                         const std::vector<std::string>& labels) {
  std::set<Labels> kinds;
  for (const auto& sample : metrics.Family(counter)) {
    if (sample.value == 0) continue;
    Labels kind;
    for (const std::string& label : labels) {
      const auto found = sample.labels.find(label);
      if (found != sample.labels.end()) kind.insert(*found);
    }
    if (kind.size() == labels.size()) kinds.insert(kind);
  }
  return kinds;
}

MethodActivity MethodBetween(const Difference& difference,
                             const Labels& labels) {
  const std::string handled = "grpc_server_handled_total";
  const std::string seconds = "grpc_server_handling_seconds";
  Labels ok = labels;
  ok["grpc_code"] = "OK";
  const double rate = difference.Rate(handled, labels);
  return {.method = labels.at("grpc_method"),
          .rate = rate,
          .error_rate = rate - difference.Rate(handled, ok),
          .p50 = difference.Quantile(seconds, labels, 0.5),
          .p99 = difference.Quantile(seconds, labels, 0.99)};
}

OperationActivity OperationBetween(const Difference& difference,
                                   const Labels& labels) {
  const std::string compute = "convgrad_compute_seconds";
  const double flops = difference.Rate("convgrad_flops_total", labels);
  return {
      .op = labels.at("op"),
      .backend = labels.at("backend"),
      .dtype = labels.at("dtype"),
      .rate = difference.Rate("convgrad_requests_total", labels),
      .gflops_per_second = flops / 1e9,
      .queue_p99 = difference.Quantile("convgrad_queue_seconds", labels, 0.99),
      .compute_p50 = difference.Quantile(compute, labels, 0.5),
      .compute_p99 = difference.Quantile(compute, labels, 0.99)};
}

}  // namespace

ServerActivity ActivityBetween(const MetricsText& before,
                               const MetricsText& after,
                               absl::Duration elapsed) {
  const Difference difference(before, after, elapsed);
  ServerActivity activity;
  activity.elapsed = elapsed;
  activity.queued = after.Sum("convgrad_queue_depth");
  activity.running = after.Sum("convgrad_jobs_running");
  activity.waiting_for_memory = after.Sum("convgrad_admission_waiters");
  activity.memory_bytes = after.Sum("convgrad_memory_used_bytes");
  activity.memory_capacity_bytes = after.Sum("convgrad_memory_capacity_bytes");
  activity.sessions = after.Sum("convgrad_sessions");
  activity.kept_tensors = after.Sum("convgrad_kept_tensors");
  activity.kept_programs = after.Sum("convgrad_kept_programs");
  activity.kept_tapes = after.Sum("convgrad_kept_tapes");
  activity.kept_tape_bytes = after.Sum("convgrad_kept_tape_bytes");
  activity.kept_bytes = after.Sum("convgrad_kept_bytes");
  activity.kept_capacity_bytes = after.Sum("convgrad_kept_capacity_bytes");
  activity.plans = after.Sum("convgrad_plan_cache_plans");
  activity.plan_bytes = after.Sum("convgrad_plan_cache_bytes");
  const double hits = difference.Growth("convgrad_plan_cache_hits_total", {});
  const double misses =
      difference.Growth("convgrad_plan_cache_misses_total", {});
  activity.plan_hits = hits + misses > 0 ? hits / (hits + misses) : kNone;
  activity.rejection_rate = difference.Rate("convgrad_rejections_total");
  activity.received_rate = difference.Rate("convgrad_received_bytes_total");
  activity.sent_rate = difference.Rate("convgrad_sent_bytes_total");
  for (const Labels& labels :
       KindsOf(after, "grpc_server_handled_total", {"grpc_method"})) {
    activity.methods.push_back(MethodBetween(difference, labels));
  }
  for (const Labels& labels :
       KindsOf(after, "convgrad_requests_total", {"op", "backend", "dtype"})) {
    activity.operations.push_back(OperationBetween(difference, labels));
  }
  const std::string steps = "convgrad_network_step_seconds_total";
  for (const Labels& labels : KindsOf(after, steps, {"step", "backend"})) {
    activity.steps.push_back({labels.at("step"), labels.at("backend"),
                              difference.Rate(steps, labels)});
  }
  std::stable_sort(activity.steps.begin(), activity.steps.end(),
                   [](const StepActivity& a, const StepActivity& b) {
                     return a.busy > b.busy;
                   });
  return activity;
}

}  // namespace convgrad
