// Tests that every list of operators has each row of the table.
#include "backends/core/program/operators/operator_table.h"

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "backends/core/program/operators/attribute_text.h"
#include "gtest/gtest.h"
#include "tests/conformance/programs/program_list.h"
#include "tests/conformance/programs/random_program.h"

namespace convgrad {
namespace {

std::string OptionalText(absl::string_view name, bool is_optional) {
  return absl::StrCat(name, is_optional ? "?" : "");
}

// Returns the operator's line of the table in proto/networks.md.
std::string LineOf(const OperatorSpec& spec) {
  std::vector<std::string> operands, attributes;
  for (const OperandSpec& operand : spec.operands) {
    operands.push_back(OptionalText(operand.name, operand.optional));
  }
  if (spec.variadic) operands.push_back("...");
  for (const AttributeSpec& attribute : spec.attributes) {
    attributes.push_back(
        attribute.default_text.empty()
            ? OptionalText(attribute.name, !attribute.required)
            : absl::StrCat(attribute.name, "=", attribute.default_text));
  }
  return absl::StrCat("| `", spec.name, "` | ", absl::StrJoin(operands, ", "),
                      " | ", absl::StrJoin(attributes, ", "), " |\n");
}

std::set<Operator> OperatorsOf(const Program& program) {
  std::set<Operator> operators;
  for (const ProgramStep& step : program.steps) operators.insert(step.op);
  return operators;
}

void ExpectAll(const std::set<Operator>& found) {
  for (const OperatorSpec& spec : Operators()) {
    EXPECT_TRUE(found.contains(spec.op)) << spec.name;
  }
}

TEST(OperatorTableTest, HasOneRowForEachOperator) {
  std::set<absl::string_view> names;
  for (size_t i = 0; i < Operators().size(); ++i) {
    const OperatorSpec& spec = Operators()[i];
    EXPECT_EQ(static_cast<size_t>(spec.op), i) << spec.name;
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
    EXPECT_EQ(ParseOperator(spec.name), spec.op);
    EXPECT_FALSE(spec.operands.empty()) << spec.name;
    for (const AttributeSpec& attribute : spec.attributes) {
      if (attribute.default_text.empty()) continue;
      EXPECT_TRUE(ParseAttribute(attribute.default_text)) << attribute.name;
    }
  }
}

TEST(OperatorTableTest, RefusesRowsThatAreMissingOrTwice) {
  std::vector<Operator> operators;
  for (const OperatorSpec& spec : Operators()) operators.push_back(spec.op);
  RequireEachOnce(operators);
  std::vector<Operator> twice = operators;
  twice[3] = twice[2];
  EXPECT_DEATH(RequireEachOnce(twice), "Operator 3 has no row");
  operators.pop_back();
  EXPECT_DEATH(RequireEachOnce(operators), "has no row");
}

TEST(OperatorTableTest, ConformanceProgramsHaveEveryOperator) {
  std::set<Operator> found;
  for (const auto& given :
       testing_support::ReadProgramList(CONVGRAD_PROGRAM_LIST)) {
    found.merge(OperatorsOf(*given.program));
  }
  ExpectAll(found);
}

TEST(OperatorTableTest, RandomProgramsHaveEveryOperator) {
  std::set<Operator> found;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    found.merge(OperatorsOf(*testing_support::RandomProgram(seed).program));
  }
  ExpectAll(found);
}

TEST(OperatorTableTest, NetworksPageShowsIt) {
  std::ifstream file(CONVGRAD_NETWORKS_PAGE);
  std::stringstream page;
  page << file.rdbuf();
  std::string lines;
  for (const OperatorSpec& spec : Operators()) lines += LineOf(spec);
  EXPECT_NE(page.str().find(absl::StrCat("|---|---|---|\n", lines, "\n")),
            std::string::npos)
      << "proto/networks.md should have these lines:\n"
      << lines;
}

}  // namespace
}  // namespace convgrad
