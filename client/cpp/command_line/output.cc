#include "client/cpp/command_line/output.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "client/cpp/support_table.h"

namespace convgrad {
namespace {

using Stage = std::pair<absl::string_view, double>;

// In the order of a call's life. Units: seconds.
std::array<Stage, 8> StagesOf(const v1::StageTimes& seconds) {
  return {{{"receive", seconds.receive()},
           {"decode", seconds.decode()},
           {"queue", seconds.queue()},
           {"plan", seconds.plan()},
           {"reorder", seconds.reorder()},
           {"compute", seconds.compute()},
           {"transfer", seconds.transfer()},
           {"encode", seconds.encode()}}};
}

// What the server's total holds that no stage names.
double Unaccounted(const v1::StageTimes& seconds) {
  double rest = seconds.total();
  for (const auto& [name, stage] : StagesOf(seconds)) rest -= stage;
  return rest;
}

double Percent(double part, double whole) {
  return whole > 0 ? 100 * part / whole : 0;
}

double GigaflopsPerSecond(int64_t flops, double seconds) {
  return seconds > 0 ? static_cast<double>(flops) / seconds / 1e9 : 0;
}

double Megabytes(int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

// Returns the value below which a share `quantile` lies, by nearest rank.
double Quantile(std::vector<double> values, double quantile) {
  std::sort(values.begin(), values.end());
  const auto last = static_cast<double>(values.size() - 1);
  return values[static_cast<size_t>(std::lround(quantile * last))];
}

template <typename Get>
double Median(const std::vector<OperationReply>& replies, Get get) {
  std::vector<double> values;
  for (const OperationReply& reply : replies) values.push_back(get(reply));
  return Quantile(std::move(values), 0.5);
}

std::string Number(const std::optional<double>& number) {
  return number ? absl::StrFormat("%.10g", *number) : "-";
}

// What the server expected of each backend, if it had a choice.
void PrintPredictions(const v1::Report& report) {
  for (const v1::Prediction& prediction : report.predictions()) {
    std::cout << absl::StrFormat(
        "  predicted    %s: wire %.3f, transfer %.3f, compute %.3f ms\n",
        prediction.backend(), prediction.wire() * 1e3,
        prediction.transfer() * 1e3, prediction.compute() * 1e3);
  }
}

// What the server found in the results, if it was asked to look.
void PrintFindings(const v1::Report& report) {
  if (report.has_self_check()) {
    const v1::SelfCheck& check = report.self_check();
    std::cout << absl::StrFormat("  self-check   %s in %.3f ms\n",
                                 check.passed() ? "passed" : "FAILED",
                                 check.seconds() * 1e3);
  }
  for (const v1::ResultStatistics& statistics : report.statistics()) {
    std::cout << absl::StrFormat(
        "  non-finite   %d in %s\n", statistics.nonfinite_count(),
        absl::AsciiStrToLower(
            absl::StripPrefix(v1::Result_Name(statistics.which()), "RESULT_")));
  }
}

}  // namespace

void PrintReply(const ConvOperation& operation, const OperationReply& reply) {
  const v1::Report& report = reply.report;
  const v1::StageTimes& seconds = report.seconds();
  const double elapsed = absl::ToDoubleSeconds(reply.elapsed);
  std::cout << ToString(operation) << "\n";
  std::cout << absl::StrFormat("  backend      %s: %s\n", report.backend(),
                               report.implementation());
  std::cout << absl::StrFormat(
      "  time         %.3f ms, %.1f GFLOP/s; computing alone %.1f GFLOP/s\n",
      elapsed * 1e3, GigaflopsPerSecond(report.flops(), elapsed),
      GigaflopsPerSecond(report.flops(), seconds.compute()));
  std::cout << absl::StrFormat(
      "  wire         %.2f MB sent, %.2f MB received, %.2f MB shared, %.3f ms "
      "outside the server's total\n",
      Megabytes(reply.sent_bytes), Megabytes(reply.received_bytes),
      Megabytes(reply.region_bytes), (elapsed - seconds.total()) * 1e3);
  std::vector<std::string> stages;
  for (const auto& [name, stage] : StagesOf(seconds)) {
    stages.push_back(absl::StrFormat("%s %.3f", name, stage * 1e3));
  }
  std::cout << absl::StrFormat("  stages [ms]  %s; total %.3f\n",
                               absl::StrJoin(stages, ", "),
                               seconds.total() * 1e3);
  std::cout << absl::StrFormat("  unaccounted  %.3f ms, %.1f %% of the total\n",
                               Unaccounted(seconds) * 1e3,
                               Percent(Unaccounted(seconds), seconds.total()));
  std::cout << "  plan         "
            << (report.plan_cache_hit() ? "from the cache" : "made now")
            << "\n";
  PrintPredictions(reply.report);
  PrintFindings(reply.report);
}

void PrintAdjoint(const AdjointCheck& check) {
  std::cout << absl::StrFormat(
      "  adjoint      <conv(x,w),g> = %s, <x,grad_input> = %s, "
      "<w,grad_weight> = %s\n"
      "               difference %.3g, bound %.3g, that is %.2g of it: %s\n",
      Number(check.forward), Number(check.grad_input),
      Number(check.grad_weight), check.difference, check.bound,
      check.bound > 0 ? check.difference / check.bound : 0,
      check.ok() ? "ok" : "FAILED");
}

void PrintBench(const ConvOperation& operation,
                const std::vector<OperationReply>& replies) {
  std::vector<double> elapsed;
  for (const OperationReply& reply : replies) {
    elapsed.push_back(absl::ToDoubleSeconds(reply.elapsed));
  }
  const OperationReply& last = replies.back();
  const double median = Quantile(elapsed, 0.5);
  const int64_t bytes =
      last.sent_bytes + last.received_bytes + last.region_bytes;
  std::cout << ToString(operation) << "\n";
  std::cout << absl::StrFormat("  backend  %s: %s\n", last.report.backend(),
                               last.report.implementation());
  std::cout << absl::StrFormat(
      "  calls    %d: min %.3f, median %.3f, p99 %.3f ms\n", replies.size(),
      Quantile(elapsed, 0) * 1e3, median * 1e3, Quantile(elapsed, 0.99) * 1e3);
  std::cout << absl::StrFormat(
      "  median   %.1f GFLOP/s, %.1f MB/s of %.2f MB sent, %.2f MB received, "
      "%.2f MB shared\n",
      GigaflopsPerSecond(last.report.flops(), median),
      Megabytes(bytes) / median, Megabytes(last.sent_bytes),
      Megabytes(last.received_bytes), Megabytes(last.region_bytes));
  std::cout << "  stage medians     ms      % of the call\n";
  auto row = [&](absl::string_view name, double seconds) {
    std::cout << absl::StrFormat("    %-12s %9.3f  %8.1f\n", name,
                                 seconds * 1e3, Percent(seconds, median));
  };
  for (size_t i = 0; i < StagesOf(last.report.seconds()).size(); ++i) {
    row(StagesOf(last.report.seconds())[i].first,
        Median(replies, [&](const OperationReply& reply) {
          return StagesOf(reply.report.seconds())[i].second;
        }));
  }
  row("unaccounted", Median(replies, [](const OperationReply& reply) {
        return Unaccounted(reply.report.seconds());
      }));
  row("total", Median(replies, [](const OperationReply& reply) {
        return reply.report.seconds().total();
      }));
  row("outside", Median(replies, [](const OperationReply& reply) {
        return absl::ToDoubleSeconds(reply.elapsed) -
               reply.report.seconds().total();
      }));
}

// Returns "f32" for DATA_TYPE_F32.
std::string DtypeName(int dtype) {
  return absl::AsciiStrToLower(absl::StripPrefix(
      v1::DataType_Name(static_cast<v1::DataType>(dtype)), "DATA_TYPE_"));
}

void PrintCapabilities(const v1::GetCapabilitiesResponse& response) {
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
      std::cout << "  " << DtypeName(dtype)
                << (is_native ? " natively\n" : " by conversion\n");
    }
  }
  std::cout << "\n" << SupportTable(response);
}

void PrintError(const absl::Status& status) {
  std::cerr << "convgrad: " << absl::StatusCodeToString(status.code()) << ": "
            << absl::StrReplaceAll(status.message(), {{"\n", " "}}) << "\n";
}

}  // namespace convgrad
