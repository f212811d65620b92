#include "client/cpp/command_line/activity/server_activity.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "nlohmann/json.hpp"

namespace convgrad {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Names in the document, and the server's metrics with their values.
constexpr std::pair<const char*, const char*> kGauges[] = {
    {"jobs_waiting", "convgrad_queue_depth"},
    {"jobs_running", "convgrad_jobs_running"},
    {"calls_waiting_for_memory", "convgrad_admission_waiters"},
    {"memory_bytes", "convgrad_memory_used_bytes"},
    {"memory_capacity_bytes", "convgrad_memory_capacity_bytes"},
    {"sessions", "convgrad_sessions"},
    {"kept_tensors", "convgrad_kept_tensors"},
    {"kept_programs", "convgrad_kept_programs"},
    {"kept_tapes", "convgrad_kept_tapes"},
    {"kept_tape_bytes", "convgrad_kept_tape_bytes"},
    {"kept_bytes", "convgrad_kept_bytes"},
    {"kept_capacity_bytes", "convgrad_kept_capacity_bytes"},
    {"plans", "convgrad_plan_cache_plans"},
    {"plan_bytes", "convgrad_plan_cache_bytes"},
};

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

Json MethodBetween(const Difference& difference, const Labels& labels) {
  const std::string handled = "grpc_server_handled_total";
  const std::string seconds = "grpc_server_handling_seconds";
  Labels ok = labels;
  ok["grpc_code"] = "OK";
  const double rate = difference.Rate(handled, labels);
  return {{"method", labels.at("grpc_method")},
          {"calls_per_second", rate},
          {"errors_per_second", rate - difference.Rate(handled, ok)},
          {"p50_seconds", difference.Quantile(seconds, labels, 0.5)},
          {"p99_seconds", difference.Quantile(seconds, labels, 0.99)}};
}

Json OperationBetween(const Difference& difference, const Labels& labels) {
  const std::string queue = "convgrad_queue_seconds";
  const std::string compute = "convgrad_compute_seconds";
  const double flops = difference.Rate("convgrad_flops_total", labels);
  return {{"op", labels.at("op")},
          {"backend", labels.at("backend")},
          {"dtype", labels.at("dtype")},
          {"operations_per_second",
           difference.Rate("convgrad_requests_total", labels)},
          {"gflops_per_second", flops / 1e9},
          {"queue_p99_seconds", difference.Quantile(queue, labels, 0.99)},
          {"compute_p50_seconds", difference.Quantile(compute, labels, 0.5)},
          {"compute_p99_seconds", difference.Quantile(compute, labels, 0.99)}};
}

// Returns the steps of networks, busiest first.
Json StepsBetween(const Difference& difference, const MetricsText& after) {
  const std::string seconds = "convgrad_network_step_seconds_total";
  constexpr char kBusy[] = "busy_seconds_per_second";
  Json::array_t steps;
  for (const Labels& labels : KindsOf(after, seconds, {"step", "backend"})) {
    steps.push_back({{"step", labels.at("step")},
                     {"backend", labels.at("backend")},
                     {kBusy, difference.Rate(seconds, labels)}});
  }
  std::stable_sort(
      steps.begin(), steps.end(),
      [&](const Json& a, const Json& b) { return a.at(kBusy) > b.at(kBusy); });
  return steps;
}

}  // namespace

Json ActivityBetween(const MetricsText& before, const MetricsText& after,
                     absl::Duration elapsed) {
  const Difference difference(before, after, elapsed);
  const double hits = difference.Growth("convgrad_plan_cache_hits_total", {});
  const double misses =
      difference.Growth("convgrad_plan_cache_misses_total", {});
  Json activity = {
      {"seconds", absl::ToDoubleSeconds(elapsed)},
      {"received_bytes_per_second",
       difference.Rate("convgrad_received_bytes_total")},
      {"sent_bytes_per_second", difference.Rate("convgrad_sent_bytes_total")},
      {"rejections_per_second", difference.Rate("convgrad_rejections_total")}};
  for (const auto& [name, gauge] : kGauges) activity[name] = after.Sum(gauge);
  activity["plan_hit_share"] =
      hits + misses > 0 ? hits / (hits + misses) : kNone;
  Json methods = Json::array();
  for (const Labels& labels :
       KindsOf(after, "grpc_server_handled_total", {"grpc_method"})) {
    methods.push_back(MethodBetween(difference, labels));
  }
  Json operations = Json::array();
  for (const Labels& labels :
       KindsOf(after, "convgrad_requests_total", {"op", "backend", "dtype"})) {
    operations.push_back(OperationBetween(difference, labels));
  }
  activity["methods"] = std::move(methods);
  activity["operations"] = std::move(operations);
  activity["steps"] = StepsBetween(difference, after);
  return activity;
}

}  // namespace convgrad
