#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cpp/command_line/measures.h"
#include "client/cpp/command_line/results.h"
#include "client/cpp/command_line/support_table.h"
#include "nlohmann/json.hpp"
#include "proto/codec/codec.h"

namespace convgrad {
namespace {

using Json = nlohmann::ordered_json;

double Percent(double part, double whole) {
  return whole > 0 ? 100 * part / whole : 0;
}

double Megabytes(int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

std::string Number(const std::optional<double>& number) {
  return number ? absl::StrFormat("%.10g", *number) : "-";
}

const char* OkOrFailed(bool ok) { return ok ? "ok" : "FAILED"; }

// Returns the server's estimates for each backend if it chose one.
std::string PredictionsText(const v1::Report& report) {
  std::string text;
  for (const v1::Prediction& prediction : report.predictions()) {
    absl::StrAppendFormat(
        &text, "  predicted    %s: wire %.3f, transfer %.3f, compute %.3f ms\n",
        prediction.backend(), prediction.wire() * 1e3,
        prediction.transfer() * 1e3, prediction.compute() * 1e3);
  }
  return text;
}

// Returns e.g. ", output 0.12 of its bound" for each result checked element by
// element.
std::string ElementErrors(const v1::SelfCheck& check) {
  std::string text;
  const auto add = [&](bool checked, absl::string_view result, double error) {
    if (!checked) return;
    absl::StrAppendFormat(&text, ", %s %.2g of its bound", result, error);
  };
  add(check.has_output_error(), "output", check.output_error());
  add(check.has_grad_bias_error(), "grad_bias", check.grad_bias_error());
  add(check.has_grad_residual_error(), "grad_residual",
      check.grad_residual_error());
  return text;
}

// Returns the server's self-check and statistics, if requested.
std::string FindingsText(const v1::Report& report) {
  std::string text;
  if (report.has_self_check()) {
    const v1::SelfCheck& check = report.self_check();
    absl::StrAppendFormat(&text, "  self-check   %s in %.3f ms%s\n",
                          check.passed() ? "passed" : "FAILED",
                          check.seconds() * 1e3, ElementErrors(check));
  }
  for (const v1::ResultStatistics& statistics : report.statistics()) {
    absl::StrAppendFormat(&text, "  non-finite   %d in %s\n",
                          statistics.nonfinite_count(),
                          absl::AsciiStrToLower(ShortName(
                              *v1::Result_descriptor(), statistics.which())));
  }
  return text;
}

}  // namespace

std::string ReplyText(const ConvOperation& operation,
                      const OperationReply& reply) {
  const v1::Report& report = reply.report;
  const v1::StageTimes& seconds = report.seconds();
  const double elapsed = absl::ToDoubleSeconds(reply.elapsed);
  const auto flops = static_cast<double>(report.flops());
  std::vector<Stage> stages = StagesOf(seconds);
  const double unaccounted = stages.back().second;
  stages.pop_back();
  const auto format = [](std::string* text, const Stage& stage) {
    absl::StrAppendFormat(text, "%s %.3f", stage.first, stage.second * 1e3);
  };
  const std::string text = absl::StrFormat(
      "%s\n"
      "  backend      %s: %s\n"
      "  time         %.3f ms, %.1f GFLOP/s; computing alone %.1f GFLOP/s\n"
      "  wire         %.2f MB sent, %.2f MB received, %.2f MB shared, %.3f ms "
      "outside the server's total\n"
      "  stages [ms]  %s; total %.3f\n"
      "  unaccounted  %.3f ms, %.1f %% of the total%s\n"
      "  plan         %s\n",
      ToString(operation), report.backend(), report.implementation(),
      elapsed * 1e3, GigaflopsPerSecond(flops, elapsed),
      GigaflopsPerSecond(flops, seconds.compute()), Megabytes(reply.sent_bytes),
      Megabytes(reply.received_bytes), Megabytes(reply.region_bytes),
      OutsideSeconds(reply) * 1e3, absl::StrJoin(stages, ", ", format),
      seconds.total() * 1e3, unaccounted * 1e3,
      Percent(unaccounted, seconds.total()),
      unaccounted < 0 ? ": stages overlap" : "",
      report.plan_cache_hit() ? "from the cache" : "made now");
  return absl::StrCat(text, PredictionsText(report), FindingsText(report));
}

std::string CheckText(const ResultCheck& check) {
  std::string text;
  if (const auto& bias = check.grad_bias) {
    absl::StrAppendFormat(
        &text, "  grad_bias    sum %.10g, sum of g %.10g, bound %.3g: %s\n",
        bias->found, bias->expected, bias->bound, OkOrFailed(bias->ok()));
  }
  if (!check.adjoint) return text;
  const AdjointCheck& adjoint = *check.adjoint;
  absl::StrAppendFormat(
      &text,
      "  adjoint      <conv(x,w),g> = %s, <x,grad_input> = %s, "
      "<w,grad_weight> = %s\n"
      "               difference %.3g, bound %.3g, that is %.2g of it: %s\n",
      Number(adjoint.forward), Number(adjoint.grad_input),
      Number(adjoint.grad_weight), adjoint.difference, adjoint.bound,
      adjoint.bound > 0 ? adjoint.difference / adjoint.bound : 0,
      OkOrFailed(adjoint.ok()));
  return text;
}

std::string SummaryText(const Json& summary) {
  const auto word = [&](const char* name) {
    return summary.at(name).get<std::string>();
  };
  const auto seconds = [&](const char* name) {
    return summary.at("seconds").at(name).get<double>();
  };
  const auto megabytes = [&](const char* name) {
    return Megabytes(summary.at("bytes").at(name).get<int64_t>());
  };
  const double median = seconds("median");
  const double sent = megabytes("sent");
  const double received = megabytes("received");
  const double shared = megabytes("shared");
  std::string text = absl::StrFormat(
      "%s\n"
      "  backend  %s: %s\n"
      "  calls    %d: min %.3f, median %.3f, p99 %.3f ms\n"
      "  median   %.1f GFLOP/s, %.1f MB/s of %.2f MB sent, %.2f MB received, "
      "%.2f MB shared\n"
      "  stage medians     ms      %% of the call\n",
      word("operation"), word("backend"), word("implementation"),
      summary.at("calls").get<int64_t>(), seconds("min") * 1e3, median * 1e3,
      seconds("p99") * 1e3, summary.at("gflops_per_second").get<double>(),
      (sent + received + shared) / median, sent, received, shared);
  for (const auto& [name, stage] : summary.at("stage_median_seconds").items()) {
    const auto stage_median = stage.get<double>();
    absl::StrAppendFormat(&text, "    %-12s %9.3f  %8.1f\n", name,
                          stage_median * 1e3, Percent(stage_median, median));
  }
  return text;
}

std::string SessionsText(const v1::ListSessionsResponse& response) {
  std::string text =
      absl::StrFormat("%-20s %-16s %-20s %12s %9s %9s %7s %10s %10s %9s\n",
                      "session", "handle", "client", "epoch", "change",
                      "durable", "tensors", "MB", "quota MB", "ends in");
  for (const v1::SessionInfo& session : response.sessions()) {
    const std::string rest =
        session.on_disk() ? "on disk"
        : session.remaining_seconds() > 0
            ? absl::StrFormat("%.0f s", session.remaining_seconds())
            : "in use";
    const std::string durable =
        session.durable() ? absl::StrCat(session.durable_number()) : "-";
    absl::StrAppendFormat(
        &text, "%-20s %-16s %-20s %12d %9d %9s %7d %10.2f %10.2f %9s\n",
        session.name().empty() ? "-" : session.name(), session.handle(),
        session.client(), session.epoch(), session.number(), durable,
        session.tensors(), Megabytes(session.kept_bytes()),
        Megabytes(session.quota_bytes()), rest);
  }
  return text;
}

std::string CapabilitiesText(const v1::GetCapabilitiesResponse& response) {
  const v1::Limits& limits = response.limits();
  std::string text = absl::StrFormat(
      "server %s, %d workers of %d threads\n"
      "limits: message %d bytes, memory %d bytes, %d multiply-adds "
      "(reference %d)\n",
      response.server_version(), response.workers(),
      response.threads_per_worker(), limits.max_message_bytes(),
      limits.memory_budget_bytes(), limits.max_multiply_adds(),
      limits.max_reference_multiply_adds());
  if (response.has_shared_memory()) {
    absl::StrAppendFormat(&text, "shared memory: %d bytes at %s\n",
                          response.shared_memory().max_region_bytes(),
                          response.shared_memory().address());
  }
  for (const v1::BackendCapabilities& backend : response.backends()) {
    absl::StrAppendFormat(
        &text, "%s%s%s%s%s\n", backend.name(),
        backend.version().empty() ? "" : " ", backend.version(),
        backend.description().empty() ? "" : ", ", backend.description());
    if (!backend.available()) {
      absl::StrAppend(&text, "  unavailable: ", backend.unavailable_reason(),
                      "\n");
    }
    if (backend.cpu_features_size() > 0) {
      absl::StrAppend(&text, "  with ",
                      absl::StrJoin(backend.cpu_features(), ", "), "\n");
    }
    for (int dtype : backend.dtypes()) {
      const std::string name =
          absl::AsciiStrToLower(ShortName(*v1::DataType_descriptor(), dtype));
      const bool is_native =
          absl::c_linear_search(backend.native_dtypes(), dtype);
      absl::StrAppend(&text, "  ", name,
                      is_native ? " natively\n" : " by conversion\n");
    }
    for (const std::string& failed : backend.failed_proofs()) {
      absl::StrAppend(&text, "  failed its proof on this machine: ", failed,
                      "\n");
    }
  }
  return absl::StrCat(text, "\n", SupportTable(response));
}

std::string ComparisonsText(const std::vector<Comparison>& comparisons) {
  std::string text;
  int right = 0, wrong = 0, refused = 0;
  for (const Comparison& comparison : comparisons) {
    absl::StrAppend(&text, ToString(comparison.operation), "\n");
    if (!comparison.refusal.empty()) {
      ++refused;
      absl::StrAppend(&text, "  refused: ", comparison.refusal, "\n");
    }
    for (const ComparedResult& result : comparison.results) {
      ++(result.ok() ? right : wrong);
      const std::string integers =
          result.differing < 0
              ? "not compared"
              : absl::StrFormat("%d of %d differ", result.differing,
                                result.elements);
      absl::StrAppendFormat(
          &text, "  %-14s integers: %s; real numbers: %.2g of the bound: %s\n",
          NameOf(result.request.which), integers, result.worst,
          OkOrFailed(result.ok()));
    }
  }
  absl::StrAppendFormat(&text,
                        "%d results right, %d wrong; %d operations refused\n",
                        right, wrong, refused);
  return text;
}

}  // namespace convgrad
