#include "client/cpp/command_line/measures.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "nlohmann/json.hpp"

namespace convgrad {
namespace {

using Json = nlohmann::ordered_json;

// Returns the quantile by nearest rank.
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

}  // namespace

std::vector<Stage> StagesOf(const v1::StageTimes& seconds) {
  std::vector<Stage> stages = {
      {"receive", seconds.receive()},   {"decode", seconds.decode()},
      {"queue", seconds.queue()},       {"plan", seconds.plan()},
      {"reorder", seconds.reorder()},   {"compute", seconds.compute()},
      {"transfer", seconds.transfer()}, {"encode", seconds.encode()}};
  double rest = seconds.total();
  for (const auto& [name, stage] : stages) rest -= stage;
  stages.emplace_back("unaccounted", rest);
  return stages;
}

double GigaflopsPerSecond(double flops, double seconds) {
  return seconds > 0 ? flops / seconds / 1e9 : 0;
}

double OutsideSeconds(const OperationReply& reply) {
  return absl::ToDoubleSeconds(reply.elapsed) - reply.report.seconds().total();
}

Json BytesOf(const OperationReply& reply) {
  return {{"sent", reply.sent_bytes},
          {"received", reply.received_bytes},
          {"shared", reply.region_bytes}};
}

Json SummaryOf(const ConvOperation& operation,
               const std::vector<OperationReply>& replies) {
  std::vector<double> elapsed;
  for (const OperationReply& reply : replies) {
    elapsed.push_back(absl::ToDoubleSeconds(reply.elapsed));
  }
  const double median = Quantile(elapsed, 0.5);
  Json stages = Json::object();
  const std::vector<Stage> names = StagesOf(replies.back().report.seconds());
  for (size_t i = 0; i < names.size(); ++i) {
    stages[std::string(names[i].first)] =
        Median(replies, [i](const auto& reply) {
          return StagesOf(reply.report.seconds())[i].second;
        });
  }
  stages["total"] = Median(replies, [](const auto& reply) {
    return reply.report.seconds().total();
  });
  stages["outside"] = Median(replies, &OutsideSeconds);
  const v1::Report& last = replies.back().report;
  return {{"operation", ToString(operation)},
          {"backend", last.backend()},
          {"implementation", last.implementation()},
          {"calls", replies.size()},
          {"seconds",
           {{"min", Quantile(elapsed, 0)},
            {"median", median},
            {"p99", Quantile(elapsed, 0.99)}}},
          {"gflops_per_second",
           GigaflopsPerSecond(static_cast<double>(last.flops()), median)},
          {"bytes", BytesOf(replies.back())},
          {"stage_median_seconds", std::move(stages)}};
}

}  // namespace convgrad
