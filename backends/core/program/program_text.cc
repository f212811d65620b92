// Implements ToString and ParseProgram: one declaration or step per line.
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "backends/core/field_errors.h"
#include "backends/core/program/operators/attribute_text.h"
#include "backends/core/program/program.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

std::string LineOf(const ProgramParameter& parameter) {
  std::string line = absl::StrCat("parameter ", parameter.name, " [",
                                  absl::StrJoin(parameter.dims, ", "), "]");
  if (parameter.dtype != DataType::kF32) {
    absl::StrAppend(&line, " ", NameOf(parameter.dtype));
  }
  if (!parameter.trainable) absl::StrAppend(&line, " fixed");
  return line;
}

std::string LineOf(const ProgramStep& step) {
  std::vector<std::string> arguments;
  for (const std::string& operand : step.operands) {
    arguments.push_back(operand.empty() ? "none" : operand);
  }
  for (const auto& [name, value] : step.attributes) {
    arguments.push_back(absl::StrCat(name, "=", ToString(value)));
  }
  return absl::StrCat(step.result, " = ", NameOf(step.op), "(",
                      absl::StrJoin(arguments, ", "), ")");
}

// Reads one line from its beginning; errors name it.
class LineReader {
 public:
  LineReader(size_t number, absl::string_view text)
      : number_(number), rest_(absl::StripAsciiWhitespace(text)) {}

  // Takes the text before the first of `ends`, without surrounding white space.
  absl::string_view Take(absl::string_view ends) {
    const absl::string_view token = rest_.substr(0, rest_.find_first_of(ends));
    rest_.remove_prefix(token.size());
    rest_ = absl::StripAsciiWhitespace(rest_);
    return absl::StripAsciiWhitespace(token);
  }

  bool Skip(absl::string_view prefix) {
    if (!absl::ConsumePrefix(&rest_, prefix)) return false;
    rest_ = absl::StripAsciiWhitespace(rest_);
    return true;
  }

  absl::string_view rest() const { return rest_; }

  absl::Status Error(absl::string_view found,
                     absl::string_view expected) const {
    return Malformed(absl::StrCat("line ", number_),
                     absl::StrCat("\"", found, "\""), expected);
  }

 private:
  size_t number_;
  absl::string_view rest_;
};

absl::StatusOr<ProgramInput> ReadInput(LineReader* line) {
  ProgramInput input;
  input.name = std::string(line->Take(" "));
  input.is_index = line->Skip("index");
  if (!line->rest().empty()) return line->Error(line->rest(), "index, or end");
  return input;
}

absl::Status ReadDims(LineReader* line, Dims* dims) {
  if (!line->Skip("[")) return line->Error(line->rest(), "dims: [64, 3, 7, 7]");
  const absl::string_view inner = line->Take("]");
  if (!line->Skip("]")) return line->Error(line->rest(), "] after dims");
  if (inner.empty()) return absl::OkStatus();
  for (absl::string_view part : absl::StrSplit(inner, ',')) {
    int64_t extent;
    if (!absl::SimpleAtoi(part, &extent)) {
      return line->Error(part, "an extent, an integer");
    }
    dims->push_back(extent);
  }
  return absl::OkStatus();
}

absl::StatusOr<ProgramParameter> ReadParameter(LineReader* line) {
  ProgramParameter parameter;
  parameter.name = std::string(line->Take(" "));
  RETURN_IF_ERROR(ReadDims(line, &parameter.dims));
  while (!line->rest().empty()) {
    const absl::string_view word = line->Take(" ");
    const auto dtype = ParseDataType(word);
    if (!dtype && word != "fixed") return line->Error(word, "i64 or fixed");
    if (dtype) {
      parameter.dtype = *dtype;
    } else {
      parameter.trainable = false;
    }
  }
  return parameter;
}

absl::Status ReadAttribute(absl::string_view name, LineReader* line,
                           ProgramStep* step) {
  const bool is_list = line->Skip("[");
  std::string text(line->Take(is_list ? "]" : ",)"));
  if (is_list && !line->Skip("]")) {
    return line->Error(line->rest(), "] after a list");
  }
  if (is_list) text = absl::StrCat("[", text, "]");
  const auto value = ParseAttribute(text);
  if (!value) {
    return line->Error(text, "true, false, a number, a word or a list");
  }
  if (!step->attributes.emplace(name, *value).second) {
    return line->Error(name, "each attribute once");
  }
  return absl::OkStatus();
}

absl::Status ReadArgument(LineReader* line, ProgramStep* step) {
  const absl::string_view token = line->Take(",=)");
  if (line->Skip("=")) return ReadAttribute(token, line, step);
  if (token.empty()) return line->Error(line->rest(), "an operand");
  if (!step->attributes.empty()) {
    return line->Error(token, "operands before attributes");
  }
  step->operands.emplace_back(token == "none" ? "" : token);
  return absl::OkStatus();
}

// Reads the text after "RESULT =".
absl::StatusOr<ProgramStep> ReadStep(absl::string_view result,
                                     LineReader* line) {
  ProgramStep step;
  step.result = std::string(result);
  const absl::string_view name = line->Take("(");
  if (!line->Skip("(")) return line->Error(name, "OPERATOR(OPERANDS...)");
  const auto op = ParseOperator(name);
  if (!op) return line->Error(name, "an operator");
  step.op = *op;
  do {
    RETURN_IF_ERROR(ReadArgument(line, &step));
  } while (line->Skip(","));
  if (!line->Skip(")") || !line->rest().empty()) {
    return line->Error(line->rest(), ") at the end");
  }
  return step;
}

absl::Status ReadLine(LineReader line, Program* program) {
  const absl::string_view first = line.Take(" =");
  if (line.Skip("=")) {
    ASSIGN_OR_RETURN(program->steps.emplace_back(), ReadStep(first, &line));
  } else if (first == "input") {
    ASSIGN_OR_RETURN(program->inputs.emplace_back(), ReadInput(&line));
  } else if (first == "parameter") {
    ASSIGN_OR_RETURN(program->parameters.emplace_back(), ReadParameter(&line));
  } else if (first == "output") {
    program->outputs.emplace_back(line.rest());
  } else {
    return line.Error(first, "input, parameter, output or RESULT = ...");
  }
  return absl::OkStatus();
}

}  // namespace

std::string ToString(const Program& program) {
  std::string text;
  for (const ProgramInput& input : program.inputs) {
    absl::StrAppend(&text, "input ", input.name,
                    input.is_index ? " index\n" : "\n");
  }
  for (const ProgramParameter& parameter : program.parameters) {
    absl::StrAppend(&text, LineOf(parameter), "\n");
  }
  for (const ProgramStep& step : program.steps) {
    absl::StrAppend(&text, LineOf(step), "\n");
  }
  for (const std::string& output : program.outputs) {
    absl::StrAppend(&text, "output ", output, "\n");
  }
  return text;
}

absl::StatusOr<Program> ParseProgram(absl::string_view text) {
  Program program;
  size_t number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    RETURN_IF_ERROR(ReadLine(LineReader(number, line), &program));
  }
  RETURN_IF_ERROR(Validate(program));
  return program;
}

}  // namespace convgrad
