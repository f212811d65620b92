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
  // Returns the sum of the samples of a family of whole numbers.
  int64_t SumOf(absl::string_view name) const {
    double sum = 0;
    for (const Reading& reading : all_) {
      if (reading.name == name) sum += reading.value;
    }
    return static_cast<int64_t>(sum);
  }

 private:
  std::vector<Reading> all_;
};

}  // namespace convgrad
