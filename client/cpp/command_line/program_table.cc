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
#include "backends/core/status.h"

namespace convgrad {
namespace {

absl::Status BadInput(absl::string_view found, absl::string_view expected) {
  return InvalidField(Reason::kMalformed, "--input",
                      absl::StrCat("\"", found, "\""), expected);
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

absl::StatusOr<ProgramTable> ReadProgramTable(const std::string& file,
                                              const std::string& inputs) {
  ASSIGN_OR_RETURN(const Program program, ReadProgram(file));
  ASSIGN_OR_RETURN(const std::vector<Dims> dims, InputDimsOf(program, inputs));
  ASSIGN_OR_RETURN(const ProgramShapes shapes, InferShapes(program, dims));
  ProgramTable table;
  const auto add_value = [&](const Dims& value) {
    constexpr int64_t kBytes = 4;
    table.value_bytes += kBytes * CountOf(value);
  };
  for (const Dims& input : dims) add_value(input);
  absl::flat_hash_set<std::string> seen;
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const ProgramStep& step = program.steps[i];
    ProgramTableRow row{step.result, NameOf(step.op),
                        shapes.dims.at(step.result), 0, shapes.flops[i]};
    for (const std::string& operand : step.operands) {
      const ProgramParameter* parameter = FindParameter(program, operand);
      if (parameter == nullptr || !seen.insert(operand).second) continue;
      const int64_t count = CountOf(parameter->dims);
      row.parameters += count;
      (parameter->trainable ? table.trainable_parameters
                            : table.fixed_parameters) += count;
    }
    add_value(row.dims);
    table.flops = SaturatingAdd(table.flops, row.flops);
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string TextOf(const ProgramTable& table) {
  constexpr double kMega = 1e6;
  const auto mega = [](int64_t number) {
    return static_cast<double>(number) / kMega;
  };
  std::string text = absl::StrFormat("%-24s %-18s %-22s %12s %12s\n", "step",
                                     "operator", "dims", "parameters", "MFLOP");
  for (const ProgramTableRow& row : table.rows) {
    absl::StrAppendFormat(&text, "%-24s %-18s %-22s %12d %12.2f\n", row.result,
                          row.op, ToString(row.dims), row.parameters,
                          mega(row.flops));
  }
  absl::StrAppendFormat(
      &text,
      "%d steps, %d trainable and %d fixed parameters, %.2f MFLOP forward, "
      "%.2f MB of values in f32\n",
      table.rows.size(), table.trainable_parameters, table.fixed_parameters,
      mega(table.flops), mega(table.value_bytes));
  return text;
}

}  // namespace convgrad
