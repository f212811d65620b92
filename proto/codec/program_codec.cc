#include "proto/codec/program_codec.h"

#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "proto/codec/codec.h"
#include "proto/codec/codec_enums.h"
#include "proto/codec/payload_message.h"

namespace convgrad {
namespace {

absl::StatusOr<AttributeValue> DecodeValue(
    const v1::Program::Attribute& attribute, const std::string& path) {
  switch (attribute.value_case()) {
    case v1::Program::Attribute::kFlag:
      return AttributeValue(attribute.flag());
    case v1::Program::Attribute::kInteger:
      return AttributeValue(int64_t{attribute.integer()});
    case v1::Program::Attribute::kNumber:
      return AttributeValue(attribute.number());
    case v1::Program::Attribute::kWord:
      return AttributeValue(attribute.word());
    case v1::Program::Attribute::kIntegers: {
      const auto& values = attribute.integers().values();
      return AttributeValue(std::vector<int64_t>(values.begin(), values.end()));
    }
    case v1::Program::Attribute::kNumbers: {
      const auto& values = attribute.numbers().values();
      return AttributeValue(std::vector<double>(values.begin(), values.end()));
    }
    case v1::Program::Attribute::VALUE_NOT_SET:
      break;
  }
  return Missing(path + ".value", "none", "an attribute's value");
}

absl::StatusOr<Operator> DecodeOperator(const std::string& name,
                                        const std::string& path) {
  if (const auto op = ParseOperator(name)) return *op;
  return Unsupported(path + ".operator",
                     absl::StrCat("'", absl::CHexEscape(name), "'"),
                     "one of the operators that proto/networks.md lists");
}

absl::StatusOr<ProgramStep> DecodeStep(const v1::Program::Step& message,
                                       const std::string& path) {
  ProgramStep step;
  step.result = message.result();
  ASSIGN_OR_RETURN(step.op, DecodeOperator(message.operator_(), path));
  step.operands.assign(message.operands().begin(), message.operands().end());
  for (int i = 0; i < message.attributes_size(); ++i) {
    const v1::Program::Attribute& attribute = message.attributes(i);
    const std::string field = absl::StrCat(path, ".attributes[", i, "]");
    ASSIGN_OR_RETURN(AttributeValue value, DecodeValue(attribute, field));
    if (step.attributes.emplace(attribute.name(), std::move(value)).second) {
      continue;
    }
    return InvalidField(Reason::kDuplicate, field + ".name", attribute.name(),
                        "each attribute once");
  }
  return step;
}

absl::StatusOr<ProgramParameter> DecodeParameter(
    const v1::Program::Parameter& message, const std::string& path) {
  ProgramParameter parameter;
  parameter.name = message.name();
  parameter.dims.assign(message.dims().begin(), message.dims().end());
  parameter.trainable = !message.fixed();
  if (message.dtype() == v1::DATA_TYPE_UNSPECIFIED) return parameter;
  const auto dtype = DecodeDataType(message.dtype());
  if (!dtype) {
    return InvalidEnum(path + ".dtype", message.dtype(), "a known dtype");
  }
  parameter.dtype = *dtype;
  return parameter;
}

absl::StatusOr<Program> DecodeFields(const v1::Program& message) {
  if (message.steps_size() > static_cast<int>(kMaxProgramSteps)) {
    return InvalidField(Reason::kLimitExceeded, "steps", message.steps_size(),
                        absl::StrCat("at most ", kMaxProgramSteps));
  }
  Program program;
  for (const v1::Program::Input& input : message.inputs()) {
    program.inputs.push_back({input.name(), input.is_index()});
  }
  for (int i = 0; i < message.parameters_size(); ++i) {
    ASSIGN_OR_RETURN(program.parameters.emplace_back(),
                     DecodeParameter(message.parameters(i),
                                     absl::StrCat("parameters[", i, "]")));
  }
  for (int i = 0; i < message.steps_size(); ++i) {
    ASSIGN_OR_RETURN(
        program.steps.emplace_back(),
        DecodeStep(message.steps(i), absl::StrCat("steps[", i, "]")));
  }
  program.outputs.assign(message.outputs().begin(), message.outputs().end());
  RETURN_IF_ERROR(Validate(program));
  return program;
}

// Sets the oneof's alternative for the type of `value`.
struct ValueEncoder {
  v1::Program::Attribute* attribute;

  void operator()(bool value) const { attribute->set_flag(value); }
  void operator()(int64_t value) const { attribute->set_integer(value); }
  void operator()(double value) const { attribute->set_number(value); }
  void operator()(const std::string& value) const {
    attribute->set_word(value);
  }
  void operator()(const std::vector<int64_t>& values) const {
    attribute->mutable_integers()->mutable_values()->Add(values.begin(),
                                                         values.end());
  }
  void operator()(const std::vector<double>& values) const {
    attribute->mutable_numbers()->mutable_values()->Add(values.begin(),
                                                        values.end());
  }
};

void EncodeStep(const ProgramStep& step, v1::Program::Step* message) {
  message->set_result(step.result);
  message->set_operator_(std::string(NameOf(step.op)));
  message->mutable_operands()->Add(step.operands.begin(), step.operands.end());
  for (const auto& [name, value] : step.attributes) {
    v1::Program::Attribute* attribute = message->add_attributes();
    attribute->set_name(name);
    std::visit(ValueEncoder{attribute}, value);
  }
}

}  // namespace

absl::StatusOr<Program> DecodeProgram(const v1::Program& message) {
  RETURN_IF_ERROR(CheckCriticalFields(message));
  absl::StatusOr<Program> program = DecodeFields(message);
  if (!program.ok()) return WithFieldPrefix(program.status(), "program.");
  return program;
}

v1::Program EncodeProgram(const Program& program) {
  v1::Program message;
  for (const ProgramInput& input : program.inputs) {
    v1::Program::Input* added = message.add_inputs();
    added->set_name(input.name);
    added->set_is_index(input.is_index);
  }
  for (const ProgramParameter& parameter : program.parameters) {
    v1::Program::Parameter* added = message.add_parameters();
    added->set_name(parameter.name);
    added->mutable_dims()->Add(parameter.dims.begin(), parameter.dims.end());
    added->set_fixed(!parameter.trainable);
    // A valid program has only two dtypes, and the other one is the default.
    if (parameter.dtype == DataType::kI64) added->set_dtype(v1::DATA_TYPE_I64);
  }
  for (const ProgramStep& step : program.steps) {
    EncodeStep(step, message.add_steps());
  }
  message.mutable_outputs()->Add(program.outputs.begin(),
                                 program.outputs.end());
  return message;
}

std::string SerializeProgram(const Program& program) {
  return EncodeProgram(program).SerializeAsString();
}

absl::StatusOr<Program> DeserializeProgram(absl::string_view bytes) {
  v1::Program message;
  const auto size = std::ssize(bytes);
  if (size > kMaxHeadBytes ||
      !message.ParseFromArray(bytes.data(), static_cast<int>(size))) {
    return Malformed("program", "other bytes", "a serialized Program");
  }
  return DecodeProgram(message);
}

}  // namespace convgrad
