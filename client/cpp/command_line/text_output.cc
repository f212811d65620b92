#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/cpp/command_line/activity/activity_text.h"
#include "client/cpp/command_line/measures.h"
#include "client/cpp/command_line/output.h"
#include "client/cpp/command_line/support_table.h"
#include "proto/codec/codec.h"

namespace convgrad {
namespace {

double Percent(double part, double whole) {
  return whole > 0 ? 100 * part / whole : 0;
}

double Megabytes(double bytes) { return bytes / 1e6; }

double Megabytes(int64_t bytes) {
  return Megabytes(static_cast<double>(bytes));
}

std::string Number(const std::optional<double>& number) {
  return number ? absl::StrFormat("%.10g", *number) : "-";
}

const char* OkOrFailed(bool ok) { return ok ? "ok" : "FAILED"; }

// Prints the server's estimates for each backend if it chose one.
void PrintPredictions(const v1::Report& report) {
  for (const v1::Prediction& prediction : report.predictions()) {
    std::cout << absl::StrFormat(
        "  predicted    %s: wire %.3f, transfer %.3f, compute %.3f ms\n",
        prediction.backend(), prediction.wire() * 1e3,
        prediction.transfer() * 1e3, prediction.compute() * 1e3);
  }
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

// Prints the server's self-check and statistics, if requested.
void PrintFindings(const v1::Report& report) {
  if (report.has_self_check()) {
    const v1::SelfCheck& check = report.self_check();
    std::cout << absl::StrFormat("  self-check   %s in %.3f ms%s\n",
                                 check.passed() ? "passed" : "FAILED",
                                 check.seconds() * 1e3, ElementErrors(check));
  }
  for (const v1::ResultStatistics& statistics : report.statistics()) {
    std::cout << absl::StrFormat(
        "  non-finite   %d in %s\n", statistics.nonfinite_count(),
        absl::AsciiStrToLower(
            ShortName(*v1::Result_descriptor(), statistics.which())));
  }
}

class TextOutput : public Output {
 public:
  void Reply(const ConvOperation& operation,
             const OperationReply& reply) override;
  void Wrote(const std::vector<std::string>& paths) override {
    for (const std::string& path : paths) {
      std::cout << "  wrote        " << path << "\n";
    }
  }
  void Check(const ResultCheck& check) override;
  void Bench(const ConvOperation& operation,
             const std::vector<OperationReply>& replies) override;
  void Capabilities(const v1::GetCapabilitiesResponse& response) override;
  void Sessions(const v1::ListSessionsResponse& response) override;
  void Program(const ProgramTable& table) override {
    std::cout << TextOf(table);
  }
  void Comparisons(const std::vector<Comparison>& comparisons) override;
  void Activity(const ServerActivity& activity) override;
  void Error(const absl::Status& status) override { PrintError(status); }
  void Finish() override {}
};

void TextOutput::Reply(const ConvOperation& operation,
                       const OperationReply& reply) {
  const v1::Report& report = reply.report;
  const v1::StageTimes& seconds = report.seconds();
  const double elapsed = absl::ToDoubleSeconds(reply.elapsed);
  const auto flops = static_cast<double>(report.flops());
  std::cout << ToString(operation) << "\n";
  std::cout << absl::StrFormat("  backend      %s: %s\n", report.backend(),
                               report.implementation());
  std::cout << absl::StrFormat(
      "  time         %.3f ms, %.1f GFLOP/s; computing alone %.1f GFLOP/s\n",
      elapsed * 1e3, GigaflopsPerSecond(flops, elapsed),
      GigaflopsPerSecond(flops, seconds.compute()));
  std::cout << absl::StrFormat(
      "  wire         %.2f MB sent, %.2f MB received, %.2f MB shared, %.3f ms "
      "outside the server's total\n",
      Megabytes(reply.sent_bytes), Megabytes(reply.received_bytes),
      Megabytes(reply.region_bytes), OutsideSeconds(reply) * 1e3);
  std::vector<std::string> parts;
  std::vector<Stage> stages = StagesOf(seconds);
  const double unaccounted = stages.back().second;
  stages.pop_back();
  for (const auto& [name, stage] : stages) {
    parts.push_back(absl::StrFormat("%s %.3f", name, stage * 1e3));
  }
  std::cout << absl::StrFormat("  stages [ms]  %s; total %.3f\n",
                               absl::StrJoin(parts, ", "),
                               seconds.total() * 1e3);
  std::cout << absl::StrFormat("  unaccounted  %.3f ms, %.1f %% of the total\n",
                               unaccounted * 1e3,
                               Percent(unaccounted, seconds.total()));
  std::cout << "  plan         "
            << (report.plan_cache_hit() ? "from the cache" : "made now")
            << "\n";
  PrintPredictions(reply.report);
  PrintFindings(reply.report);
}

void TextOutput::Check(const ResultCheck& check) {
  if (const auto& bias = check.grad_bias) {
    std::cout << absl::StrFormat(
        "  grad_bias    sum %.10g, sum of g %.10g, bound %.3g: %s\n",
        bias->found, bias->expected, bias->bound, OkOrFailed(bias->ok()));
  }
  if (!check.adjoint) return;
  const AdjointCheck& adjoint = *check.adjoint;
  std::cout << absl::StrFormat(
      "  adjoint      <conv(x,w),g> = %s, <x,grad_input> = %s, "
      "<w,grad_weight> = %s\n"
      "               difference %.3g, bound %.3g, that is %.2g of it: %s\n",
      Number(adjoint.forward), Number(adjoint.grad_input),
      Number(adjoint.grad_weight), adjoint.difference, adjoint.bound,
      adjoint.bound > 0 ? adjoint.difference / adjoint.bound : 0,
      OkOrFailed(adjoint.ok()));
}

void TextOutput::Bench(const ConvOperation& operation,
                       const std::vector<OperationReply>& replies) {
  const BenchSummary summary = Summarize(replies);
  const OperationReply& last = replies.back();
  const int64_t bytes =
      last.sent_bytes + last.received_bytes + last.region_bytes;
  std::cout << ToString(operation) << "\n";
  std::cout << absl::StrFormat("  backend  %s: %s\n", last.report.backend(),
                               last.report.implementation());
  std::cout << absl::StrFormat(
      "  calls    %d: min %.3f, median %.3f, p99 %.3f ms\n", summary.calls,
      summary.min * 1e3, summary.median * 1e3, summary.p99 * 1e3);
  std::cout << absl::StrFormat(
      "  median   %.1f GFLOP/s, %.1f MB/s of %.2f MB sent, %.2f MB received, "
      "%.2f MB shared\n",
      summary.gflops_per_second, Megabytes(bytes) / summary.median,
      Megabytes(last.sent_bytes), Megabytes(last.received_bytes),
      Megabytes(last.region_bytes));
  std::cout << "  stage medians     ms      % of the call\n";
  for (const auto& [name, seconds] : summary.stages) {
    std::cout << absl::StrFormat("    %-12s %9.3f  %8.1f\n", name,
                                 seconds * 1e3,
                                 Percent(seconds, summary.median));
  }
}

void TextOutput::Sessions(const v1::ListSessionsResponse& response) {
  std::cout << absl::StrFormat(
      "%-20s %-16s %-20s %12s %9s %9s %7s %10s %10s %9s\n", "session", "handle",
      "client", "epoch", "change", "durable", "tensors", "MB", "quota MB",
      "ends in");
  for (const v1::SessionInfo& session : response.sessions()) {
    const std::string rest =
        session.on_disk() ? "on disk"
        : session.remaining_seconds() > 0
            ? absl::StrFormat("%.0f s", session.remaining_seconds())
            : "in use";
    const std::string durable =
        session.durable() ? absl::StrCat(session.durable_number()) : "-";
    std::cout << absl::StrFormat(
        "%-20s %-16s %-20s %12d %9d %9s %7d %10.2f %10.2f %9s\n",
        session.name().empty() ? "-" : session.name(), session.handle(),
        session.client(), session.epoch(), session.number(), durable,
        session.tensors(), Megabytes(session.kept_bytes()),
        Megabytes(session.quota_bytes()), rest);
  }
}

void TextOutput::Capabilities(const v1::GetCapabilitiesResponse& response) {
  const v1::Limits& limits = response.limits();
  std::cout << absl::StrFormat("server %s, %d workers of %d threads\n",
                               response.server_version(), response.workers(),
                               response.threads_per_worker());
  std::cout << absl::StrFormat(
      "limits: message %d bytes, memory %d bytes, %d multiply-adds "
      "(reference %d)\n",
      limits.max_message_bytes(), limits.memory_budget_bytes(),
      limits.max_multiply_adds(), limits.max_reference_multiply_adds());
  if (response.has_shared_memory()) {
    std::cout << absl::StrFormat("shared memory: %d bytes at %s\n",
                                 response.shared_memory().max_region_bytes(),
                                 response.shared_memory().address());
  }
  for (const v1::BackendCapabilities& backend : response.backends()) {
    std::cout << absl::StrFormat("%s%s%s, %s\n", backend.name(),
                                 backend.version().empty() ? "" : " ",
                                 backend.version(), backend.description());
    if (!backend.available()) {
      std::cout << "  unavailable: " << backend.unavailable_reason() << "\n";
    }
    if (backend.cpu_features_size() > 0) {
      std::cout << "  with " << absl::StrJoin(backend.cpu_features(), ", ")
                << "\n";
    }
    for (int dtype : backend.dtypes()) {
      const auto& native = backend.native_dtypes();
      const bool is_native =
          std::find(native.begin(), native.end(), dtype) != native.end();
      std::cout << "  "
                << absl::AsciiStrToLower(
                       ShortName(*v1::DataType_descriptor(), dtype))
                << (is_native ? " natively\n" : " by conversion\n");
    }
    for (const std::string& failed : backend.failed_proofs()) {
      std::cout << "  failed its proof on this machine: " << failed << "\n";
    }
  }
  std::cout << "\n" << SupportTable(response);
}

void TextOutput::Comparisons(const std::vector<Comparison>& comparisons) {
  int right = 0, wrong = 0, refused = 0;
  for (const Comparison& comparison : comparisons) {
    std::cout << ToString(comparison.operation) << "\n";
    if (!comparison.refusal.empty()) {
      ++refused;
      std::cout << "  refused: " << comparison.refusal << "\n";
    }
    for (const ComparedResult& result : comparison.results) {
      ++(result.ok() ? right : wrong);
      const std::string integers =
          result.differing < 0
              ? "not compared"
              : absl::StrFormat("%d of %d differ", result.differing,
                                result.elements);
      std::cout << absl::StrFormat(
          "  %-14s integers: %s; real numbers: %.2g of the bound: %s\n",
          NameOf(result.request.which), integers, result.worst,
          OkOrFailed(result.ok()));
    }
  }
  std::cout << absl::StrFormat(
      "%d results right, %d wrong; %d operations refused\n", right, wrong,
      refused);
}

void TextOutput::Activity(const ServerActivity& activity) {
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  if (terminal) std::cout << "\x1b[H\x1b[2J";  // cursor home, clear screen
  std::cout << TextOf(activity);
  if (!terminal) std::cout << "\n";
  std::cout << std::flush;
}

}  // namespace

std::unique_ptr<Output> MakeTextOutput() {
  return std::make_unique<TextOutput>();
}

void PrintError(const absl::Status& status) {
  std::cerr << "convgrad: " << absl::StatusCodeToString(status.code()) << ": "
            << absl::StrReplaceAll(status.message(), {{"\n", " "}}) << "\n";
}

}  // namespace convgrad
