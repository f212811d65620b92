// Implements ToString and Parse of a ConvProblem; kAxisFields is the grammar of
// both.
#include <array>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "backends/core/convolution/conv_problem.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

// A per-axis field: its token prefix, its member and its default, which
// ToString omits. Longer prefixes come first, so that "pb" isn't parsed as "p".
struct AxisField {
  absl::string_view prefix;
  int64_t SpatialAxis::*member;
  int64_t fallback;
};

constexpr std::array<AxisField, 7> kAxisFields = {{
    {"op", &SpatialAxis::output_padding, 0},
    {"pb", &SpatialAxis::pad_begin, 0},
    {"pe", &SpatialAxis::pad_end, 0},
    {"i", &SpatialAxis::in, -1},
    {"k", &SpatialAxis::kernel, -1},
    {"s", &SpatialAxis::stride, 1},
    {"d", &SpatialAxis::dilation, 1},
}};

// The fields that are one number, by their letters.
constexpr std::pair<char, int64_t ConvProblem::*> kNumberFields[] = {
    {'n', &ConvProblem::batch},
    {'c', &ConvProblem::in_channels},
    {'o', &ConvProblem::out_channels},
    {'g', &ConvProblem::groups}};

Dims ValuesOf(const ConvProblem& problem, int64_t SpatialAxis::*member) {
  Dims values;
  for (const SpatialAxis& axis : problem.axes) values.push_back(axis.*member);
  return values;
}

absl::Status BadToken(absl::string_view token, absl::string_view expected) {
  return Malformed("problem string", absl::StrCat("\"", token, "\""), expected);
}

absl::StatusOr<Dims> ParseNumbers(absl::string_view token,
                                  absl::string_view digits) {
  Dims values;
  for (absl::string_view part : absl::StrSplit(digits, 'x')) {
    int64_t value;
    if (!absl::SimpleAtoi(part, &value)) {
      return BadToken(token, "integers joined by 'x'");
    }
    values.push_back(value);
  }
  return values;
}

absl::Status SetAxes(absl::string_view token, const Dims& values,
                     int64_t SpatialAxis::*member, ConvProblem* problem) {
  const size_t rank = problem->axes.size();
  if (rank == 0 || (values.size() != 1 && values.size() != rank)) {
    return BadToken(token,
                    absl::StrCat("one number or one per spatial axis, ", rank));
  }
  for (size_t i = 0; i < rank; ++i) {
    problem->axes[i].*member = values[values.size() == 1 ? 0 : i];
  }
  return absl::OkStatus();
}

absl::Status ParseKind(absl::string_view token, ConvProblem* problem) {
  if (token == "linear") return absl::OkStatus();
  absl::string_view rest = token;
  problem->transposed = absl::ConsumePrefix(&rest, "convtranspose");
  const bool is_ordinary = absl::ConsumePrefix(&rest, "conv");
  const char least_rank = problem->transposed ? '0' : '1';
  if (problem->transposed == is_ordinary || rest.size() != 2 ||
      rest[0] < least_rank || rest[0] > '3' || rest[1] != 'd') {
    return BadToken(token,
                    "linear, conv1d, conv2d, conv3d or convtranspose1d...");
  }
  problem->axes.resize(rest[0] - '0');
  return absl::OkStatus();
}

absl::Status ParseBias(absl::string_view token, ConvProblem* problem) {
  absl::string_view digits = token.substr(1);
  if (digits.empty()) {
    problem->bias = PerChannelBiasDims(*problem);
  } else if (digits == "scalar") {
    problem->bias = Dims{};
  } else {
    ASSIGN_OR_RETURN(problem->bias, ParseNumbers(token, digits));
  }
  return absl::OkStatus();
}

// Parses a token without a number. Returns false if `token` isn't one.
bool ParseWord(absl::string_view token, ConvProblem* problem,
               ShapeHints* hints) {
  if (token == "relu") {
    problem->relu = true;
  } else if (token == "res") {
    problem->residual = true;
  } else if (token == "psame") {
    hints->padding = Padding::kSameUpper;
  } else if (token == "psamelower") {
    hints->padding = Padding::kSameLower;
  } else if (token == "pvalid") {
    hints->padding = Padding::kValid;
  } else {
    return false;
  }
  return true;
}

absl::Status ParseNumberField(absl::string_view token, ConvProblem* problem,
                              ShapeHints* hints) {
  for (const AxisField& field : kAxisFields) {
    absl::string_view digits = token;
    if (!absl::ConsumePrefix(&digits, field.prefix)) continue;
    ASSIGN_OR_RETURN(const Dims values, ParseNumbers(token, digits));
    if (field.prefix == "op") hints->has_output_padding = true;
    return SetAxes(token, values, field.member, problem);
  }
  ASSIGN_OR_RETURN(const Dims values, ParseNumbers(token, token.substr(1)));
  if (token[0] == 'p') {
    RETURN_IF_ERROR(SetAxes(token, values, &SpatialAxis::pad_begin, problem));
    return SetAxes(token, values, &SpatialAxis::pad_end, problem);
  }
  if (token[0] == 'y') {
    const size_t rank = problem->axes.size();
    if (values.size() != 1 && values.size() != rank) {
      return BadToken(token, "one output extent per spatial axis");
    }
    hints->output = values.size() == 1 ? Dims(rank, values[0]) : values;
    return absl::OkStatus();
  }
  if (values.size() != 1) return BadToken(token, "one number");
  for (const auto& [letter, member] : kNumberFields) {
    if (token[0] != letter) continue;
    problem->*member = values[0];
    return absl::OkStatus();
  }
  return BadToken(token, "one of n c o g i k s d p pb pe op y b relu res");
}

}  // namespace

std::string ToString(const ConvProblem& problem) {
  std::string text =
      problem.axes.empty() && !problem.transposed
          ? "linear"
          : absl::StrCat(problem.transposed ? "convtranspose" : "conv",
                         problem.axes.size(), "d");
  absl::StrAppend(&text, "_n", problem.batch, "_c", problem.in_channels, "_o",
                  problem.out_channels);
  if (problem.groups != 1) absl::StrAppend(&text, "_g", problem.groups);
  const Dims pad_begin = ValuesOf(problem, &SpatialAxis::pad_begin);
  const bool symmetric = pad_begin == ValuesOf(problem, &SpatialAxis::pad_end);
  auto append = [&](absl::string_view prefix, const Dims& values,
                    int64_t fallback) {
    if (values == Dims(values.size(), fallback)) return;
    absl::StrAppend(&text, "_", prefix, absl::StrJoin(values, "x"));
  };
  for (const AxisField& field :
       {kAxisFields[3], kAxisFields[4], kAxisFields[5], kAxisFields[6]}) {
    append(field.prefix, ValuesOf(problem, field.member), field.fallback);
  }
  if (symmetric) {
    append("p", pad_begin, 0);
  } else {
    append("pb", pad_begin, 0);
    append("pe", ValuesOf(problem, &SpatialAxis::pad_end), 0);
  }
  append("op", ValuesOf(problem, &SpatialAxis::output_padding), 0);
  if (problem.bias) {
    absl::StrAppend(&text, "_b",
                    problem.bias->empty() ? std::string("scalar")
                                          : absl::StrJoin(*problem.bias, "x"));
  }
  if (problem.residual) absl::StrAppend(&text, "_res");
  if (problem.relu) absl::StrAppend(&text, "_relu");
  return text;
}

absl::StatusOr<ConvProblem> Parse(absl::string_view text) {
  const std::vector<absl::string_view> tokens = absl::StrSplit(text, '_');
  ConvProblem problem;
  ShapeHints hints;
  RETURN_IF_ERROR(ParseKind(tokens[0], &problem));
  absl::string_view bias_token;
  for (size_t i = 1; i < tokens.size(); ++i) {
    const absl::string_view token = tokens[i];
    if (token.empty()) return BadToken(text, "tokens joined by single '_'");
    if (ParseWord(token, &problem, &hints)) continue;
    if (token[0] == 'b') {
      bias_token = token;  // "b" alone needs the channels
      continue;
    }
    RETURN_IF_ERROR(ParseNumberField(token, &problem, &hints));
  }
  if (!bias_token.empty()) RETURN_IF_ERROR(ParseBias(bias_token, &problem));
  return Resolve(std::move(problem), hints);
}

}  // namespace convgrad
