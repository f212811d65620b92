#include "tests/cases/case_record.h"

#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "nlohmann/json.hpp"

namespace convgrad::testing_support {
namespace {

using Json = nlohmann::json;

constexpr std::pair<const char*, Operand> kInputKeys[] = {
    {"x", Operand::kInput},
    {"w", Operand::kWeight},
    {"b", Operand::kBias},
    {"z", Operand::kResidual},
    {"dy", Operand::kGradOutput}};

constexpr std::pair<const char*, Result> kExpectedKeys[] = {
    {"y", Result::kOutput},
    {"dx", Result::kGradInput},
    {"dw", Result::kGradWeight},
    {"db", Result::kGradBias}};

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("not a record: ", what));
}

// Returns an array of numbers; empty if there is none of this name.
std::vector<double> Numbers(const Json& object, const char* key) {
  std::vector<double> numbers;
  if (!object.contains(key) || !object[key].is_array()) return numbers;
  for (const Json& element : object[key]) {
    if (element.is_number()) numbers.push_back(element.get<double>());
  }
  return numbers;
}

absl::StatusOr<Dims> AxisValues(const Json& json, const char* key, size_t rank,
                                int64_t otherwise) {
  if (!json.contains(key)) return Dims(rank, otherwise);
  Dims values;
  for (double value : Numbers(json, key)) {
    values.push_back(static_cast<int64_t>(value));
  }
  if (values.size() != rank) return Malformed(key);
  return values;
}

absl::StatusOr<ConvProblem> ParseProblem(const Json& json) {
  for (const char* key : {"n", "ic", "oc", "groups", "ndim"}) {
    if (!json.contains(key) || !json[key].is_number()) return Malformed(key);
  }
  ConvProblem problem;
  problem.batch = json["n"].get<int64_t>();
  problem.in_channels = json["ic"].get<int64_t>();
  problem.out_channels = json["oc"].get<int64_t>();
  problem.groups = json["groups"].get<int64_t>();
  problem.transposed = json.value("transposed", false);
  problem.relu = json.value("relu", false);
  const size_t rank = json["ndim"].get<size_t>();
  if (rank > 3) return Malformed("ndim");
  problem.axes.resize(rank);
  constexpr std::pair<const char*, int64_t SpatialAxis::*> kFields[] = {
      {"in", &SpatialAxis::in},
      {"k", &SpatialAxis::kernel},
      {"stride", &SpatialAxis::stride},
      {"dilation", &SpatialAxis::dilation},
      {"pad_begin", &SpatialAxis::pad_begin},
      {"pad_end", &SpatialAxis::pad_end},
      {"output_padding", &SpatialAxis::output_padding},
      {"out", &SpatialAxis::out}};
  for (const auto& [key, field] : kFields) {
    ASSIGN_OR_RETURN(const Dims values, AxisValues(json, key, rank, 0));
    for (size_t axis = 0; axis < rank; ++axis) {
      problem.axes[axis].*field = values[axis];
    }
  }
  return problem;
}

void ReadPublishedValues(const Json& json, CaseRecord* record) {
  if (!json.contains("inputs") || !json.contains("expected")) return;
  const Json& inputs = json["inputs"];
  for (const auto& [key, operand] : kInputKeys) {
    record->inputs[static_cast<size_t>(operand)] = Numbers(inputs, key);
  }
  if (inputs.contains("b")) {
    record->problem.bias = PerChannelBiasDims(record->problem);
  }
  record->problem.residual = inputs.contains("z");
  for (const auto& [key, result] : kExpectedKeys) {
    if (!json["expected"].contains(key)) continue;
    record->expected_results.push_back(result);
    record->expected[static_cast<size_t>(result)] =
        Numbers(json["expected"], key);
  }
  for (const Json& name : json.value("bit_exact", Json::array())) {
    const auto dtype = ParseDataType(name.get<std::string>());
    if (dtype) record->bit_exact.push_back(*dtype);
  }
}

}  // namespace

absl::StatusOr<CaseRecord> ParseCase(const std::string& line) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Malformed("not a JSON object");
  CaseRecord record;
  record.id = json.value("id", "");
  const std::string tier = json.value("tier", "");
  if (record.id.empty() || (tier != "S" && tier != "M" && tier != "L")) {
    return Malformed("id, tier");
  }
  record.tier = tier[0];
  ASSIGN_OR_RETURN(record.problem, ParseProblem(json));
  if (json.value("bias", false)) {
    record.problem.bias = PerChannelBiasDims(record.problem);
  }
  ReadPublishedValues(json, &record);
  record.validity = Validate(record.problem);
  return record;
}

absl::StatusOr<std::vector<CaseRecord>> ReadCases(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(path);
  std::vector<CaseRecord> records;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.empty()) continue;
    absl::StatusOr<CaseRecord> record = ParseCase(line);
    if (!record.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", number, ": ", record.status().message()));
    }
    records.push_back(*std::move(record));
  }
  return records;
}

}  // namespace convgrad::testing_support
