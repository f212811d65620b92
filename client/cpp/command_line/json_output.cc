#include <cmath>
#include <iostream>

#include "backends/core/status.h"
#include "client/cpp/command_line/measures.h"
#include "client/cpp/command_line/output.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"

namespace convgrad {
namespace {

using Json = nlohmann::ordered_json;

// Returns the message in protobuf's JSON mapping, with the names of the .proto
// and with fields of value 0.
Json MessageJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  const auto status =
      google::protobuf::util::MessageToJsonString(message, &text, options);
  return status.ok() ? Json::parse(text) : Json();
}

Json NumberOrNull(const std::optional<double>& number) {
  return number && std::isfinite(*number) ? Json(*number) : Json();
}

Json StagesJson(const std::vector<Stage>& stages) {
  Json json = Json::object();
  for (const auto& [name, seconds] : stages) json[std::string(name)] = seconds;
  return json;
}

Json BytesJson(const OperationReply& reply) {
  return {{"sent", reply.sent_bytes},
          {"received", reply.received_bytes},
          {"shared", reply.region_bytes}};
}

Json ResultJson(const ComparedResult& result) {
  return {{"result", NameOf(result.request.which)},
          {"dtype", NameOf(result.request.descriptor.dtype)},
          {"elements", result.elements},
          {"integers_differing",
           result.differing < 0 ? Json() : Json(result.differing)},
          {"worst_share_of_bound", NumberOrNull(result.worst)},
          {"ok", result.ok()}};
}

class JsonOutput : public Output {
 public:
  void Reply(const ConvOperation& operation,
             const OperationReply& reply) override {
    const double elapsed = absl::ToDoubleSeconds(reply.elapsed);
    const auto flops = static_cast<double>(reply.report.flops());
    document_["operation"] = ToString(operation);
    document_["seconds"] = elapsed;
    document_["gflops_per_second"] = GigaflopsPerSecond(flops, elapsed);
    document_["bytes"] = BytesJson(reply);
    document_["report"] = MessageJson(reply.report);
  }

  void Wrote(const std::vector<std::string>& paths) override {
    document_["wrote"] = paths;
  }

  void Check(const ResultCheck& check) override {
    Json json = {{"ok", check.ok()}};
    if (const auto& bias = check.grad_bias) {
      json["grad_bias"] = {{"sum", NumberOrNull(bias->found)},
                           {"expected", NumberOrNull(bias->expected)},
                           {"bound", NumberOrNull(bias->bound)},
                           {"ok", bias->ok()}};
    }
    if (const auto& adjoint = check.adjoint) {
      json["adjoint"] = {{"forward", NumberOrNull(adjoint->forward)},
                         {"grad_input", NumberOrNull(adjoint->grad_input)},
                         {"grad_weight", NumberOrNull(adjoint->grad_weight)},
                         {"difference", NumberOrNull(adjoint->difference)},
                         {"bound", NumberOrNull(adjoint->bound)},
                         {"ok", adjoint->ok()}};
    }
    document_["check"] = json;
  }

  void Bench(const ConvOperation& operation,
             const std::vector<OperationReply>& replies) override {
    const BenchSummary summary = Summarize(replies);
    const OperationReply& last = replies.back();
    document_["operation"] = ToString(operation);
    document_["backend"] = last.report.backend();
    document_["implementation"] = last.report.implementation();
    document_["calls"] = summary.calls;
    document_["seconds"] = {
        {"min", summary.min}, {"median", summary.median}, {"p99", summary.p99}};
    document_["gflops_per_second"] = summary.gflops_per_second;
    document_["bytes"] = BytesJson(last);
    document_["stage_median_seconds"] = StagesJson(summary.stages);
  }

  void Capabilities(const v1::GetCapabilitiesResponse& response) override {
    document_ = MessageJson(response);
  }

  void Sessions(const v1::ListSessionsResponse& response) override {
    document_ = MessageJson(response);
  }

  void Program(const ProgramTable& table) override {
    document_ = {{"steps", Json::array()},
                 {"trainable_parameters", table.trainable_parameters},
                 {"fixed_parameters", table.fixed_parameters},
                 {"flops", table.flops},
                 {"value_bytes", table.value_bytes}};
    for (const ProgramTableRow& row : table.rows) {
      document_["steps"].push_back(
          {{"result", row.result},
           {"operator", std::string(row.op)},
           {"dims", std::vector<int64_t>(row.dims.begin(), row.dims.end())},
           {"parameters", row.parameters},
           {"flops", row.flops}});
    }
  }

  void Comparisons(const std::vector<Comparison>& comparisons) override {
    Json list = Json::array();
    for (const Comparison& comparison : comparisons) {
      Json entry = {{"operation", ToString(comparison.operation)}};
      if (!comparison.refusal.empty()) entry["refusal"] = comparison.refusal;
      entry["results"] = Json::array();
      for (const ComparedResult& result : comparison.results) {
        entry["results"].push_back(ResultJson(result));
      }
      list.push_back(entry);
    }
    document_["comparisons"] = list;
  }

  void Activity(const ServerActivity& activity) override;

  void Error(const absl::Status& status) override {
    PrintError(status);
    Json error = {{"code", absl::StatusCodeToString(status.code())},
                  {"message", status.message()}};
    if (const auto detail = DetailOf(status)) {
      error["reason"] = ReasonName(detail->reason);
      error["field"] = detail->field;
      error["found"] = detail->found;
      error["expected"] = detail->expected;
    }
    document_["error"] = error;
  }

  void Finish() override {
    if (!document_.empty()) Print(document_, 2);
  }

 private:
  // Replaces bytes that aren't UTF-8; paths and errors may contain some.
  static void Print(const Json& json, int indent) {
    std::cout << json.dump(indent, ' ', false, Json::error_handler_t::replace)
              << std::endl;
  }

  Json document_ = Json::object();
};

void JsonOutput::Activity(const ServerActivity& activity) {
  Json methods = Json::array();
  for (const MethodActivity& method : activity.methods) {
    methods.push_back({{"method", method.method},
                       {"calls_per_second", method.rate},
                       {"errors_per_second", method.error_rate},
                       {"p50_seconds", NumberOrNull(method.p50)},
                       {"p99_seconds", NumberOrNull(method.p99)}});
  }
  Json operations = Json::array();
  for (const OperationActivity& operation : activity.operations) {
    operations.push_back(
        {{"op", operation.op},
         {"backend", operation.backend},
         {"dtype", operation.dtype},
         {"operations_per_second", operation.rate},
         {"gflops_per_second", operation.gflops_per_second},
         {"queue_p99_seconds", NumberOrNull(operation.queue_p99)},
         {"compute_p50_seconds", NumberOrNull(operation.compute_p50)},
         {"compute_p99_seconds", NumberOrNull(operation.compute_p99)}});
  }
  Json steps = Json::array();
  for (const StepActivity& step : activity.steps) {
    steps.push_back({{"step", step.step},
                     {"backend", step.backend},
                     {"busy_seconds_per_second", step.busy}});
  }
  Print({{"seconds", absl::ToDoubleSeconds(activity.elapsed)},
         {"received_bytes_per_second", activity.received_rate},
         {"sent_bytes_per_second", activity.sent_rate},
         {"rejections_per_second", activity.rejection_rate},
         {"jobs_waiting", activity.queued},
         {"jobs_running", activity.running},
         {"calls_waiting_for_memory", activity.waiting_for_memory},
         {"memory_bytes", activity.memory_bytes},
         {"memory_capacity_bytes", activity.memory_capacity_bytes},
         {"sessions", activity.sessions},
         {"kept_tensors", activity.kept_tensors},
         {"kept_programs", activity.kept_programs},
         {"kept_tapes", activity.kept_tapes},
         {"kept_tape_bytes", activity.kept_tape_bytes},
         {"kept_bytes", activity.kept_bytes},
         {"kept_capacity_bytes", activity.kept_capacity_bytes},
         {"plans", activity.plans},
         {"plan_bytes", activity.plan_bytes},
         {"plan_hit_share", NumberOrNull(activity.plan_hits)},
         {"methods", methods},
         {"operations", operations},
         {"steps", steps}},
        -1);
}

}  // namespace

std::unique_ptr<Output> MakeJsonOutput() {
  return std::make_unique<JsonOutput>();
}

}  // namespace convgrad
