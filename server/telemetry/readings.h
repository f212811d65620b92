// `Readings` are the metrics that are read at each scrape.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace convgrad {

// `Readings` is thread-compatible.
class Readings {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;
  // A sample of the family `name`.
  struct Reading {
    const char* name;
    const char* help;
    bool is_counter;
    double value;
    Labels labels;
  };

  template <typename Number>
  void Gauge(const char* name, const char* help, Number value,
             Labels labels = {}) {
    all_.push_back(
        {name, help, false, static_cast<double>(value), std::move(labels)});
  }
  template <typename Number>
  void Counter(const char* name, const char* help, Number value,
               Labels labels = {}) {
    all_.push_back(
        {name, help, true, static_cast<double>(value), std::move(labels)});
  }

  const std::vector<Reading>& all() const { return all_; }
  // Returns the sum of the samples of a family of whole numbers; -1 if there is
  // none, so that a test that expects 0 fails if the family has another name.
  int64_t SumOf(absl::string_view name) const {
    double sum = 0;
    bool is_known = false;
    for (const Reading& reading : all_) {
      if (reading.name != name) continue;
      is_known = true;
      sum += reading.value;
    }
    return is_known ? static_cast<int64_t>(sum) : -1;
  }

 private:
  std::vector<Reading> all_;
};

}  // namespace convgrad
