#include <optional>

#include "client/cpp/command_line/measures.h"
#include "client/cpp/command_line/results.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"

namespace convgrad {
namespace {

using Json = nlohmann::ordered_json;

Json OrNull(const std::optional<double>& number) {
  return number ? Json(*number) : Json();
}

Json ResultJson(const ComparedResult& result) {
  return {{"result", NameOf(result.request.which)},
          {"dtype", NameOf(result.request.descriptor.dtype)},
          {"elements", result.elements},
          {"integers_differing",
           result.differing < 0 ? Json() : Json(result.differing)},
          {"worst_share_of_bound", result.worst},
          {"ok", result.ok()}};
}

}  // namespace

Json MessageJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  const auto status =
      google::protobuf::util::MessageToJsonString(message, &text, options);
  return Json::parse(status.ok() ? text : "{}");
}

Json ReplyJson(const ConvOperation& operation, const OperationReply& reply) {
  const double elapsed = absl::ToDoubleSeconds(reply.elapsed);
  const auto flops = static_cast<double>(reply.report.flops());
  return {{"operation", ToString(operation)},
          {"seconds", elapsed},
          {"gflops_per_second", GigaflopsPerSecond(flops, elapsed)},
          {"bytes", BytesOf(reply)},
          {"report", MessageJson(reply.report)}};
}

Json CheckJson(const ResultCheck& check) {
  Json json = {{"ok", check.ok()}};
  if (const auto& bias = check.grad_bias) {
    json["grad_bias"] = {{"sum", bias->found},
                         {"expected", bias->expected},
                         {"bound", bias->bound},
                         {"ok", bias->ok()}};
  }
  if (const auto& adjoint = check.adjoint) {
    json["adjoint"] = {{"forward", OrNull(adjoint->forward)},
                       {"grad_input", OrNull(adjoint->grad_input)},
                       {"grad_weight", OrNull(adjoint->grad_weight)},
                       {"difference", adjoint->difference},
                       {"bound", adjoint->bound},
                       {"ok", adjoint->ok()}};
  }
  return {{"check", json}};
}

Json ComparisonsJson(const std::vector<Comparison>& comparisons) {
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
  return {{"comparisons", list}};
}

}  // namespace convgrad
