#include "client/cpp/command_line/activity/metrics_text.h"

#include <httplib.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

// Removes a label's quoted value from `*text` and returns it; nullopt if the
// closing quote is missing.
std::optional<std::string> TakeQuoted(absl::string_view* text) {
  if (!absl::ConsumePrefix(text, "\"")) return std::nullopt;
  std::string value;
  for (size_t i = 0; i < text->size(); ++i) {
    if ((*text)[i] == '"') {
      text->remove_prefix(i + 1);
      return value;
    }
    if ((*text)[i] == '\\' && i + 1 < text->size()) {
      ++i;
      value += (*text)[i] == 'n' ? '\n' : (*text)[i];
    } else {
      value += (*text)[i];
    }
  }
  return std::nullopt;
}

// Removes {name="value",...} from `*text` and returns it; nullopt if malformed.
std::optional<Labels> TakeLabels(absl::string_view* text) {
  Labels labels;
  if (!absl::ConsumePrefix(text, "{")) return labels;
  while (!absl::ConsumePrefix(text, "}")) {
    const size_t equals = text->find('=');
    if (equals == absl::string_view::npos) return std::nullopt;
    const std::string name(text->substr(0, equals));
    text->remove_prefix(equals + 1);
    auto value = TakeQuoted(text);
    if (!value) return std::nullopt;
    labels[name] = *std::move(value);
    absl::ConsumePrefix(text, ",");
  }
  return labels;
}

bool ParseValue(absl::string_view text, double* value) {
  text = absl::StripAsciiWhitespace(text);
  text = text.substr(0, text.find(' '));  // a timestamp may follow
  return absl::SimpleAtod(text, value);   // accepts +Inf and NaN
}

absl::Status NoMetrics(const std::string& address, absl::string_view found) {
  return MakeError(
      absl::StatusCode::kUnavailable,
      {Reason::kMissing, "--metrics", absl::StrCat(found, " at ", address),
       "a convgrad-server's --metrics_listen"});
}

}  // namespace

absl::StatusOr<MetricsText> MetricsText::Parse(absl::string_view text) {
  MetricsText metrics;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    absl::string_view rest = line;
    const size_t end = rest.find_first_of("{ ");
    const std::string name(rest.substr(0, end));
    rest.remove_prefix(std::min(end, rest.size()));
    auto labels = TakeLabels(&rest);
    double value;
    if (!labels || !ParseValue(rest, &value)) {
      return Malformed("metrics", line, "NAME{LABELS} VALUE");
    }
    metrics.families_[name].push_back({*std::move(labels), value});
  }
  return metrics;
}

const std::vector<MetricsText::Sample>& MetricsText::Family(
    const std::string& name) const {
  static const std::vector<Sample>* const kNone = new std::vector<Sample>;
  const auto found = families_.find(name);
  return found == families_.end() ? *kNone : found->second;
}

double MetricsText::Sum(const std::string& name, const Labels& labels) const {
  double sum = 0;
  for (const Sample& sample : Family(name)) {
    // std::includes needs both sorted, as a std::map is.
    if (std::includes(sample.labels.begin(), sample.labels.end(),
                      labels.begin(), labels.end())) {
      sum += sample.value;
    }
  }
  return sum;
}

absl::StatusOr<MetricsText> FetchMetrics(const std::string& address,
                                         absl::Duration timeout) {
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon == std::string::npos ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 1 ||
      port > std::numeric_limits<uint16_t>::max()) {
    return OutOfRange("--metrics", absl::StrCat("\"", address, "\""),
                      "HOST:PORT");
  }
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') {  // an IPv6 address
    host = host.substr(1, host.size() - 2);
  }
  httplib::Client client(host, port);
  const auto patience = absl::ToChronoMicroseconds(timeout);
  client.set_connection_timeout(patience);
  client.set_read_timeout(patience);
  const httplib::Result response = client.Get("/metrics");
  if (!response)
    return NoMetrics(
        address,
        absl::StrCat("no answer (", httplib::to_string(response.error()), ")"));
  if (response->status != 200) {
    return NoMetrics(address, absl::StrCat("HTTP status ", response->status));
  }
  auto metrics = MetricsText::Parse(response->body);
  if (!metrics.ok()) return NoMetrics(address, metrics.status().message());
  return metrics;
}

}  // namespace convgrad
