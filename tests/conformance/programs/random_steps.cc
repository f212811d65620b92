#include "tests/conformance/programs/random_steps.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "backends/reference/program_step_data.h"

namespace convgrad::testing_support {

AttributeValue RandomSteps::Numbers(size_t axes, int64_t least, int64_t most) {
  if (Chance(40)) return Between(least, most);
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < axes; ++i) numbers.push_back(Between(least, most));
  return numbers;
}

RandomSteps::Attributes RandomSteps::SomeAttributes(const OperatorSpec& spec) {
  Attributes attributes;
  for (const AttributeSpec& attribute : spec.attributes) {
    const std::string name(attribute.name);
    if (attribute.kind == AttributeKind::kWord) {
      const std::vector<std::string> words =
          absl::StrSplit(attribute.words, '|');
      attributes[name] = words[Between(0, std::ssize(words) - 1)];
    } else if (attribute.kind == AttributeKind::kFloat) {
      double number = 0;
      const bool has_default =
          absl::SimpleAtod(attribute.default_text, &number);
      const double own = attributes.empty() ? -0.5 : 0.75;
      attributes[name] = has_default ? 0.75 * number : own;
    }
  }
  return attributes;
}

std::vector<int64_t> RandomSteps::Shuffled(size_t count) {
  std::vector<int64_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random_);
  return order;
}

void RandomSteps::AddInput(const std::string& name, const Dims& dims,
                           bool is_index) {
  program_.inputs.push_back({name, is_index});
  inputs_.push_back(dims);
  shapes_.dims[name] = dims;
  if (!is_index) values_.push_back(name);
}

std::string RandomSteps::AddParameter(const Dims& dims, bool trainable,
                                      DataType dtype) {
  std::string name = absl::StrCat("p", program_.parameters.size());
  program_.parameters.push_back({name, dims, dtype, trainable});
  shapes_.dims[name] = dims;
  return name;
}

std::string RandomSteps::AddWeight(const Dims& dims) {
  for (const ProgramParameter& parameter : program_.parameters) {
    if (parameter.dims == dims && parameter.trainable && Chance(50)) {
      return parameter.name;
    }
  }
  return AddParameter(dims, !Chance(10));
}

bool RandomSteps::Append(Operator op, std::vector<std::string> operands,
                         Attributes attributes) {
  Program trial = program_;
  const std::string name = absl::StrCat("v", program_.steps.size());
  trial.steps.push_back({name, op, std::move(operands), std::move(attributes)});
  auto shapes = InferShapes(trial, inputs_);
  if (!shapes.ok() || CountOf(shapes->dims.at(name)) > max_elements_) {
    return false;
  }
  program_ = std::move(trial);
  shapes_ = *std::move(shapes);
  values_.push_back(name);
  return true;
}

std::string RandomSteps::InRange(const OperandSpec& operand,
                                 const std::string& x) {
  switch (operand.range) {
    case OperandRange::kWithinOne:
      return Append(Operator::kTanh, {x}, {}) ? values_.back() : x;
    case OperandRange::kPositive:
      Append(Operator::kAbs, {x}, {});
      Append(Operator::kAdd, {std::string(values_.back())}, {{"other", 0.5}});
      return values_.back();
    default:
      return x;
  }
}

bool RandomSteps::AddLinear(const std::string& x) {
  const int64_t columns = Between(1, 8);
  std::vector<std::string> operands = {x,
                                       AddWeight({columns, DimsOf(x).back()})};
  if (Chance(50)) operands.push_back(AddWeight({columns}));
  return Append(Operator::kLinear, operands, {});
}

void RandomSteps::AddChoice() {
  constexpr Operator kComparisons[] = {Operator::kEq, Operator::kLt,
                                       Operator::kLe, Operator::kGt,
                                       Operator::kGe};
  const Operator op = kComparisons[Between(0, std::ssize(kComparisons) - 1)];
  const double other = 0.25 * static_cast<double>(Between(-4, 4));
  if (!Append(op, {"x"}, {{"other", other}})) return;
  const std::string mask = values_.back();
  std::string a = "x";
  for (const std::string& value : values_) {
    if (value != mask && DimsOf(value) == DimsOf("x")) a = value;
  }
  if (Chance(50)) {
    Append(Operator::kWhere, {mask, a}, {{"other", other}});
  } else {
    Append(Operator::kWhere, {mask, a, "x"}, {});
  }
}

}  // namespace convgrad::testing_support
