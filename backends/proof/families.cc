#include "backends/proof/families.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/steady_now.h"
#include "backends/proof/program_families.h"

namespace convgrad {
namespace {

struct LayoutPair {
  Layout activation;
  Layout weight;
};

constexpr LayoutPair kLayouts[] = {{Layout::kNCX, Layout::kOIX},
                                   {Layout::kNXC, Layout::kOXI},
                                   {Layout::kNXC, Layout::kXIO},
                                   {Layout::kNDC1HWC0, Layout::kFractalZ3D}};

// A kind of operation on a problem. Tails are the ends of problem strings.
struct Kind {
  absl::string_view name;
  absl::string_view tail;
  Direction direction;
};

constexpr Kind kForward = {"forward", "", Direction::kForward};
constexpr Kind kBackward = {"backward", "_b_res_relu", Direction::kBackward};
constexpr Kind kKinds[] = {
    kForward,
    {"forward with bias", "_b", Direction::kForward},
    {"forward with bias, residual, ReLU", "_b_res_relu", Direction::kForward},
    kBackward};

// Problems with two vectors of channels, and windows at each edge and inside.
constexpr std::pair<absl::string_view, absl::string_view> kBases[] = {
    {"", "conv2d_n2_c32_o32_i5_k3_p1"},
    {"transposed ", "convtranspose2d_n2_c32_o32_i4_k3_s2_p1_op1"}};

constexpr std::pair<absl::string_view, absl::string_view> kOthers[] = {
    {"linear ", "linear_n4_c32_o32"},
    {"1-D ", "conv1d_n2_c32_o32_i12_k3_p1"},
    {"3-D ", "conv3d_n1_c32_o32_i3_k3_p1"},
    {"depthwise ", "conv2d_n2_c32_o32_g32_i6_k3_p1"},
    {"grouped ", "conv2d_n2_c64_o64_g2_i5_k3_p1"},
    {"pointwise strided ", "conv2d_n2_c32_o32_i6_k1_s2"},
    {"odd channels ", "conv2d_n2_c19_o21_i5_k3_p1"}};

ConvOperation OperationOf(absl::string_view problem_text, const Kind& kind,
                          const LayoutPair& layouts, DataType dtype) {
  const ConvProblem problem = *Parse(absl::StrCat(problem_text, kind.tail));
  ConvOperation operation =
      WholeOperation(problem, kind.direction, dtype, Layout::kNCX);
  const auto describe = [&](TensorDescriptor* tensor) {
    tensor->layout =
        IsWeightLayout(tensor->layout) ? layouts.weight : layouts.activation;
    if (IsRowMajor(tensor->layout)) return;
    tensor->c0 = DefaultC0(dtype);
    tensor->groups = problem.groups;
  };
  for (Operand which : kAllOperands) {
    auto& tensor = operation.operand(which);
    if (tensor && which != Operand::kBias) describe(&*tensor);
  }
  for (ResultRequest& request : operation.results) {
    if (request.which == Result::kGradBias) continue;
    describe(&request.descriptor);
  }
  if (kind.direction == Direction::kBackward) {
    operation.problem.residual = false;
  }
  return operation;
}

void Add(std::pair<absl::string_view, absl::string_view> base, const Kind& kind,
         const LayoutPair& layouts, std::vector<Family>* families) {
  for (DataType dtype : {DataType::kF32, DataType::kBF16, DataType::kF16}) {
    families->push_back(
        {absl::StrCat(base.first, kind.name, " ", NameOf(layouts.activation),
                      "/", NameOf(layouts.weight)),
         OperationOf(base.second, kind, layouts, dtype)});
  }
}

}  // namespace

std::vector<Family> Families() {
  std::vector<Family> families;
  for (const auto& base : kBases) {
    for (const LayoutPair& layouts : kLayouts) {
      for (const Kind& kind : kKinds) Add(base, kind, layouts, &families);
    }
  }
  for (const auto& base : kOthers) {
    for (const LayoutPair& layouts : {kLayouts[0], kLayouts[1]}) {
      for (const Kind& kind : {kForward, kBackward}) {
        Add(base, kind, layouts, &families);
      }
    }
  }
  return families;
}

ProofRun ProveFamilies(const ProvenBackend& backend, int threads,
                       const std::function<bool()>& give_up) {
  const absl::Time start = SteadyNow();
  ProofRun run;
  for (const Family& family : Families()) {
    if (give_up()) break;
    Remedy remedy;
    const absl::Status made =
        backend.MakeProvenPlan(family.operation, {.threads = threads}, &remedy)
            .status();
    if (absl::IsUnimplemented(made)) continue;
    run.families.push_back({family.name, family.operation.dtype(), remedy});
  }
  for (const ProgramFamily& family : ProgramFamilies()) {
    if (give_up()) break;
    const absl::StatusOr<Remedy> remedy = backend.ProveProgram(
        family.op, *family.operation, {.threads = threads});
    if (absl::IsUnimplemented(remedy.status())) continue;
    run.families.push_back({absl::StrCat("network ", family.name),
                            family.operation->dtype(),
                            remedy.value_or(Remedy::kRefused)});
  }
  run.elapsed = SteadyNow() - start;
  return run;
}

}  // namespace convgrad
