#include "client/cpp/command_line/program_table.h"

#include <fstream>
#include <map>
#include <sstream>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "backends/core/checked_math.h"
#include "backends/core/field_errors.h"
#include "backends/core/program/program_shapes.h"
#include "backends/core/status.h"
#include "nlohmann/json.hpp"

namespace convgrad {
namespace {

using Json = nlohmann::ordered_json;

absl::Status BadInput(absl::string_view found, absl::string_view expected) {
  return Malformed("--input", absl::StrCat("\"", found, "\""), expected);
}

absl::StatusOr<Program> ReadProgram(const std::string& file) {
  std::ifstream stream(file);
  std::stringstream text;
  text << stream.rdbuf();
  if (!stream) {
    return NotFound(file, "no readable file", "a program as text");
  }
  auto program = ParseProgram(text.str());
  if (!program.ok()) {
    return WithFieldPrefix(program.status(), absl::StrCat(file, ": "));
  }
  return program;
}

absl::StatusOr<const Dims> ParseDims(absl::string_view text) {
  Dims dims;
  for (const absl::string_view part : absl::StrSplit(text, 'x')) {
    int64_t extent;
    if (!absl::SimpleAtoi(part, &extent)) {
      return BadInput(text, "dims, as 16x3x224x224");
    }
    dims.push_back(extent);
  }
  return dims;
}

// Returns the form of --input for the program: "x=DIMS,t=DIMS".
std::string FormOf(const Program& program) {
  return absl::StrJoin(program.inputs, ",",
                       [](std::string* form, const ProgramInput& input) {
                         absl::StrAppend(form, input.name, "=DIMS");
                       });
}

// Returns the dims of each input, in the program's order.
absl::StatusOr<std::vector<Dims>> InputDimsOf(const Program& program,
                                              const std::string& text) {
  std::map<std::string, Dims> by_name;
  if (program.inputs.size() == 1 && !absl::StrContains(text, '=')) {
    ASSIGN_OR_RETURN(by_name[program.inputs[0].name], ParseDims(text));
  } else {
    for (const absl::string_view part : absl::StrSplit(text, ',')) {
      if (!absl::StrContains(part, '=')) {
        return BadInput(
            text, absl::StrCat(FormOf(program), ", with dims as 16x3x224x224"));
      }
      const std::pair<std::string, std::string> pair =
          absl::StrSplit(part, absl::MaxSplits('=', 1));
      ASSIGN_OR_RETURN(by_name[pair.first], ParseDims(pair.second));
    }
  }
  std::vector<Dims> dims;
  for (const ProgramInput& input : program.inputs) {
    const auto found = by_name.find(input.name);
    if (found == by_name.end()) {
      return BadInput(text, absl::StrCat("the dims of ", input.name, ": ",
                                         input.name, "=DIMS"));
    }
    dims.push_back(found->second);
  }
  if (by_name.size() == dims.size()) return dims;
  return BadInput(text, absl::StrCat("the program's inputs alone, ",
                                     dims.size(), " of them"));
}

int64_t CountOf(const Dims& dims) { return CheckedProduct(dims).value_or(0); }

}  // namespace

absl::StatusOr<Json> ReadProgramTable(const std::string& file,
                                      const std::string& inputs) {
  ASSIGN_OR_RETURN(const Program program, ReadProgram(file));
  ASSIGN_OR_RETURN(const std::vector<Dims> dims, InputDimsOf(program, inputs));
  ASSIGN_OR_RETURN(const ProgramShapes shapes, InferShapes(program, dims));
  int64_t trainable = 0, fixed = 0, flops = 0, values = 0;
  for (const Dims& input : dims) values += CountOf(input);
  absl::flat_hash_set<std::string> seen;
  Json steps = Json::array();
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const ProgramStep& step = program.steps[i];
    int64_t parameters = 0;
    for (const std::string& operand : step.operands) {
      const ProgramParameter* parameter = FindParameter(program, operand);
      if (parameter == nullptr || !seen.insert(operand).second) continue;
      const int64_t count = CountOf(parameter->dims);
      parameters += count;
      (parameter->trainable ? trainable : fixed) += count;
    }
    const Dims& result = shapes.dims.at(step.result);
    values += CountOf(result);
    flops = SaturatingAdd(flops, shapes.flops[i]);
    steps.push_back({{"result", step.result},
                     {"operator", NameOf(step.op)},
                     {"dims", result},
                     {"parameters", parameters},
                     {"flops", shapes.flops[i]}});
  }
  constexpr int64_t kBytes = 4;
  return Json{{"steps", std::move(steps)},
              {"trainable_parameters", trainable},
              {"fixed_parameters", fixed},
              {"flops", flops},
              {"value_bytes", kBytes * values}};
}

std::string ProgramText(const Json& table) {
  const auto number = [](const Json& object, const char* name) {
    return object.at(name).get<int64_t>();
  };
  const auto mega = [&](const Json& object, const char* name) {
    return static_cast<double>(number(object, name)) / 1e6;
  };
  std::string text = absl::StrFormat("%-24s %-18s %-22s %12s %12s\n", "step",
                                     "operator", "dims", "parameters", "MFLOP");
  for (const Json& step : table.at("steps")) {
    const auto dims = step.at("dims").get<std::vector<int64_t>>();
    absl::StrAppendFormat(&text, "%-24s %-18s %-22s %12d %12.2f\n",
                          step.at("result").get<std::string>(),
                          step.at("operator").get<std::string>(),
                          ToString(absl::MakeConstSpan(dims)),
                          number(step, "parameters"), mega(step, "flops"));
  }
  absl::StrAppendFormat(
      &text,
      "%d steps, %d trainable and %d fixed parameters, %.2f MFLOP forward, "
      "%.2f MB of values in f32\n",
      table.at("steps").size(), number(table, "trainable_parameters"),
      number(table, "fixed_parameters"), mega(table, "flops"),
      mega(table, "value_bytes"));
  return text;
}

}  // namespace convgrad
