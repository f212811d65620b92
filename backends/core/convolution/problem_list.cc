#include "backends/core/convolution/problem_list.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "backends/core/status.h"

namespace convgrad {

absl::StatusOr<std::vector<ConvProblem>> ParseProblems(absl::string_view text) {
  std::vector<ConvProblem> problems;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || absl::StartsWith(line, "#")) continue;
    absl::StatusOr<ConvProblem> problem = Parse(line);
    if (!problem.ok()) {
      return WithFieldPrefix(problem.status(),
                             absl::StrCat("line ", number, ": "));
    }
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
