#include "backends/core/convolution/problem_list.h"

#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"

namespace convgrad {

absl::StatusOr<std::vector<ConvProblem>> ParseProblems(
    absl::string_view text,
    absl::FunctionRef<absl::Status(const ConvProblem&)> check) {
  std::vector<ConvProblem> problems;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || absl::StartsWith(line, "#")) continue;
    const std::string place = absl::StrCat("line ", number, ": ");
    if (problems.size() == kMaxProblems) {
      return OutOfRange(place + "problems",
                        absl::StrCat("problem ", kMaxProblems + 1),
                        absl::StrCat("at most ", kMaxProblems));
    }
    absl::StatusOr<ConvProblem> problem = Parse(line);
    if (!problem.ok()) return WithFieldPrefix(problem.status(), place);
    RETURN_IF_ERROR(WithFieldPrefix(Validate(*problem), place));
    RETURN_IF_ERROR(WithFieldPrefix(check(*problem), place));
    problems.push_back(*std::move(problem));
  }
  return problems;
}

std::vector<std::shared_ptr<const Operation>> ProblemList::Operations() const {
  std::vector<std::shared_ptr<const Operation>> operations;
  for (const ConvProblem& problem : problems) {
    for (DataType dtype : dtypes) {
      for (Layout layout : layouts) {
        for (Direction direction :
             {Direction::kForward, Direction::kBackward}) {
          operations.push_back(std::make_shared<ConvOperation>(
              WholeOperation(problem, direction, dtype, layout)));
        }
      }
    }
  }
  return operations;
}

}  // namespace convgrad
