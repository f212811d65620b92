// `MetricsText` holds metrics parsed from Prometheus' text format; FetchMetrics
// gets them from a server.
// Format: https://prometheus.io/docs/instrumenting/exposition_formats/ 0.0.4.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace convgrad {

using Labels = std::map<std::string, std::string>;

// The samples of one scrape. Value type.
class MetricsText {
 public:
  // Errors: kInvalidArgument naming a malformed line.
  static absl::StatusOr<MetricsText> Parse(absl::string_view text);

  struct Sample {
    Labels labels;
    double value;
  };
  // Returns the family's samples; none if the family is missing.
  const std::vector<Sample>& Family(const std::string& name) const;

  // Returns the sum over the family's samples that have all of `labels`.
  double Sum(const std::string& name, const Labels& labels = {}) const;

 private:
  std::map<std::string, std::vector<Sample>> families_;
};

// Gets http://`address`/metrics.
// Errors: kInvalidArgument for an address that isn't HOST:PORT; kUnavailable if
// no server answers within `timeout`, or not with metrics.
absl::StatusOr<MetricsText> FetchMetrics(const std::string& address,
                                         absl::Duration timeout);

}  // namespace convgrad
