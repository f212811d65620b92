#include <optional>
#include <string>
#include <vector>

#include "backends/core/status.h"
#include "client/cpp/command_line/checks/reference_check.h"
#include "client/cpp/command_line/checks/result_check.h"
#include "client/cpp/command_line/commands.h"
#include "client/cpp/command_line/progress.h"
#include "client/cpp/command_line/results.h"

namespace convgrad {
namespace {

// Cover every rank and kind, each kind of padding, channel counts that fill no
// block, and every fused step. Small enough for the reference.
constexpr const char* kProblems[] = {
    "linear_n17_c33_o20_b",
    "conv1d_n3_c5_o7_i29_k4_s2_d2_p3_b",
    "conv2d_n2_c16_o32_i14_k3_p1_b_relu",
    "conv2d_n2_c3_o17_i19x23_k7_s2_p3",
    "conv2d_n4_c32_o24_i9_k1",
    "conv2d_n2_c12_o18_g6_i11_k3_d2_psame_b_res_relu",
    "conv2d_n2_c19_o19_g19_i12_k3_s2_p1",
    "conv2d_n1_c8_o8_i10_k5x3_pb2x0_pe1x1",
    "conv3d_n2_c6_o10_i7x8x9_k3_s2x1x2_p1_b",
    "convtranspose1d_n2_c6_o4_i11_k5_s3_p2_op1",
    "convtranspose2d_n2_c8_o12_g4_i6_k4_s2_p1_b_relu",
    "convtranspose3d_n1_c4_o6_i4_k3_s2_p1_op1_b",
};

struct Check {
  Direction direction;
  ConvProblem problem;
  DataType dtype;
};

absl::StatusOr<std::vector<Check>> ChecksOf(
    std::vector<std::string> problems, const std::vector<DataType>& dtypes) {
  if (problems.empty())
    problems.assign(std::begin(kProblems), std::end(kProblems));
  std::vector<Check> checks;
  for (const std::string& text : problems) {
    ASSIGN_OR_RETURN(const ConvProblem problem, Parse(text));
    for (DataType dtype : dtypes) {
      checks.push_back({Direction::kForward, problem, dtype});
      checks.push_back({Direction::kBackward, problem, dtype});
    }
  }
  return checks;
}

}  // namespace

absl::Status RunCheck(const std::vector<std::string>& problems,
                      const CommandContext& context) {
  std::vector<DataType> dtypes = {DataType::kF32, DataType::kBF16,
                                  DataType::kF16};
  if (context.settings.dtype) dtypes = {*context.settings.dtype};
  ASSIGN_OR_RETURN(const std::vector<Check> checks, ChecksOf(problems, dtypes));
  std::vector<Comparison> comparisons;
  bool ok = true;
  bool has_compared = false;
  std::optional<Progress> progress;
  progress.emplace("check", static_cast<int>(checks.size()));
  for (const Check& check : checks) {
    Settings settings = context.settings;
    settings.dtype = check.dtype;
    ASSIGN_OR_RETURN(comparisons.emplace_back(),
                     CompareWithReference(check.direction, check.problem,
                                          settings, context.client));
    for (const ComparedResult& result : comparisons.back().results) {
      ok = ok && result.ok();
      has_compared = true;
    }
    progress->Advance();
  }
  progress.reset();
  context.output->Print(ComparisonsJson(comparisons),
                        ComparisonsText(comparisons));
  if (!has_compared) {
    return absl::UnimplementedError(
        "nothing was compared: the server computes none of these operations");
  }
  return Verdict(ok);
}

}  // namespace convgrad
