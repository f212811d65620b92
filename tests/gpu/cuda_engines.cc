// This program runs cuDNN's engines on small problems, also those that are
// never the first choice, and prints whether they keep the contract of a pass.
// INEXACT: results aren't exact on integers. LEAKS: an Inf reaches results
// whose sums don't contain it. The list of ForbiddenEngines
// (backends/cuda/cuda_forbidden_engines.cc) comes from the output of `all`.
//
//   cuda_engines [SHARE SHARES]       engines that the backend may choose
//   cuda_engines SHARE SHARES all     forbidden engines as well
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/core/convolution/lowering.h"
#include "backends/core/program/conv_backend.h"
#include "backends/core/status.h"
#include "backends/cuda/cuda_graph.h"
#include "backends/cuda/device/cuda_device.h"
#include "gtest/gtest.h"
#include "tests/conformance/checked_run.h"
#include "tests/conformance/comparison.h"
#include "tests/conformance/nonfinite_check.h"

namespace convgrad {
namespace {

using testing_support::ExpectExact;
using testing_support::IntegerFill;
using testing_support::IsExactly;
using testing_support::KeepsNonfiniteApart;
using testing_support::RunChecked;

constexpr int kSkipped = 77;
constexpr int kMostEngines = 200;
// Of the engines that differ in their knobs alone.
constexpr int kMostOfOneNumber = 6;
constexpr int64_t kMaxWorkspaceBytes = int64_t{1} << 30;
// Larger problems are only run on integers.
constexpr double kMostMacsWithInf = 4e6;

// Unequal pads are missing, because the backend writes them into the data.
constexpr const char* kProblems[] = {
    "conv1d_n1_c8_o16_g8_i11_k3_p1",
    "conv1d_n2_c16_o16_i40_k5_p2",
    "conv1d_n2_c16_o16_i40_k3_d2_p2",
    "conv2d_n1_c16_o32_g16_i7_k3_p1",
    "conv2d_n2_c5_o10_g5_i6_k3",
    "conv2d_n2_c32_o32_g32_i14_k3_p1",
    "conv2d_n2_c32_o32_g32_i14_k5_s2_p2",
    "conv2d_n1_c12_o18_g3_i7_k3_p1",
    "conv2d_n2_c64_o64_g4_i8_k3_p1",
    "conv2d_n2_c64_o64_g2_i8_k1",
    "conv2d_n1_c32_o16_g4_i6_k1",
    "conv2d_n1_c16_o8_g4_i16_k3_d2_p2",
    "conv2d_n2_c8_o8_i9_k1_s3",
    "conv2d_n2_c16_o16_i8_k1_s2",
    "conv2d_n2_c3_o8_i10x14_k1_s2",
    "conv2d_n2_c64_o64_i8_k1",
    "conv2d_n1_c16_o64_i64_k3_p1",
    "conv2d_n1_c32_o64_i12x120_k3_p1",
    "conv2d_n32_c256_o16_i3_k3_p1",
    "conv2d_n2_c16_o16_i12_k3_p1",
    "conv2d_n2_c16_o24_i13_k3_s2_p1",
    "conv2d_n2_c16_o16_i14_k3_d2_p2",
    "conv2d_n2_c3_o16_i20_k7_s2_p3",
    "conv2d_n2_c16_o16_i12_k5_p2",
    "conv3d_n1_c8_o12_g4_i4_k3_p1",
    "conv3d_n1_c16_o16_g16_i5_k3_p1",
    "conv3d_n1_c16_o16_i6_k3_p1",
    "conv3d_n1_c8_o8_i6_k3_s2_p1",
    "conv2d_n1_c32_o32_g32_i112_k3_p1",
    "conv2d_n2_c64_o64_i28_k3_p1",
    "conv2d_n2_c128_o128_i14_k3_s2_p1",
    "conv2d_n2_c64_o128_i14_k1_s2",
    "conv2d_n2_c256_o64_i14_k1",
    "conv2d_n2_c128_o128_g32_i14_k3_p1",
    "conv2d_n2_c64_o64_g64_i15_k3_s2_p1",
    "conv2d_n4_c124_o19_i17_k1",
    "conv2d_n4_c28_o6_i35_k1",
    "conv2d_n2_c16_o32_i48_k3_p1",
    "conv3d_n1_c16_o16_i202x1x1_k3x1x1_s3x1x1",
};

struct Formats {
  cuda::Format format;
  Layout data, weight;
};
constexpr Formats kFormats[] = {
    {cuda::Format::kNXC, Layout::kNXC, Layout::kOXI},
    {cuda::Format::kNCX, Layout::kNCX, Layout::kOIX},
};

constexpr std::pair<DataType, DataType> kDtypes[] = {
    {DataType::kF32, DataType::kF32},
    {DataType::kBF16, DataType::kBF16},
    {DataType::kF16, DataType::kF16},
};

constexpr std::pair<Pass, Result> kPasses[] = {
    {Pass::kForward, Result::kOutput},
    {Pass::kBackwardData, Result::kGradInput},
    {Pass::kBackwardWeight, Result::kGradWeight},
};

// The operation that computes one result of `problem`.
ConvOperation OperationOf(const ConvProblem& problem, Result which,
                          std::pair<DataType, DataType> dtypes,
                          const Formats& formats) {
  ConvOperation operation = WholeOperation(
      problem,
      which == Result::kOutput ? Direction::kForward : Direction::kBackward,
      dtypes.first, formats.data);
  operation.operand(Operand::kWeight)->layout = formats.weight;
  std::erase_if(operation.results, [&](const ResultRequest& request) {
    return request.which != which;
  });
  TensorDescriptor& result = operation.results[0].descriptor;
  result.dtype = dtypes.second;
  if (which == Result::kGradWeight) result.layout = formats.weight;
  DropUnneeded(&operation);
  return operation;
}

// Runs one graph, whose tensors are the operation's.
class GraphPlan final : public Plan {
 public:
  GraphPlan(const ConvOperation& operation, const cuda::ConvGraph* graph,
            const cuda::GraphTarget* target, cuda::Device* device)
      : operation_(operation),
        graph_(graph),
        target_(target),
        device_(device) {}

  absl::StatusOr<RunTimes> Run(const RunBuffers& buffers) const override {
    ASSIGN_OR_RETURN(const cuda::Stream stream, cuda::CreateStream(device_));
    cuda::DeviceCalls& calls = device_->calls();
    cuda::DeviceBuffer memory[kOperandCount];
    void* operands[kOperandCount] = {};
    for (size_t i = 0; i < kOperandCount; ++i) {
      if (!operation_.operands[i]) continue;
      const int64_t bytes = *ByteSize(*operation_.operands[i]);
      ASSIGN_OR_RETURN(memory[i], cuda::AllocateDevice(device_, bytes));
      operands[i] = memory[i].get();
      RETURN_IF_ERROR(device_->Check(
          calls.Upload(operands[i], buffers.operands[i], bytes, stream.get()),
          "upload"));
    }
    const ResultRequest& request = operation_.results[0];
    const int64_t bytes = *ByteSize(request.descriptor);
    ASSIGN_OR_RETURN(const cuda::DeviceBuffer result,
                     cuda::AllocateDevice(device_, bytes));
    ASSIGN_OR_RETURN(
        const cuda::DeviceBuffer workspace,
        cuda::AllocateDevice(device_,
                             std::max<int64_t>(graph_->workspace_bytes(), 1)));
    const auto at = [&](Operand which) {
      return operands[static_cast<size_t>(which)];
    };
    cuda::GraphBuffers graph{at(Operand::kInput), at(Operand::kWeight),
                             at(Operand::kGradOutput), nullptr,
                             workspace.get()};
    switch (request.which) {
      case Result::kGradInput:
        graph.data = result.get();
        break;
      case Result::kGradWeight:
        graph.weight = result.get();
        break;
      default:
        graph.out = result.get();
    }
    RETURN_IF_ERROR(graph_->Run(*target_, stream.get(), graph));
    RETURN_IF_ERROR(device_->Check(
        calls.Download(buffers.results[0], result.get(), bytes, stream.get()),
        "download"));
    RETURN_IF_ERROR(device_->Check(calls.Synchronize(stream.get()), "run"));
    return RunTimes();
  }
  int64_t scratch_bytes() const override { return 0; }
  int64_t resident_bytes() const override { return sizeof(*this); }
  absl::string_view implementation() const override { return graph_->engine(); }

 private:
  const ConvOperation operation_;
  const cuda::ConvGraph* const graph_;
  const cuda::GraphTarget* const target_;
  cuda::Device* const device_;
};

// Plans the operations of one pass on one engine.
class EngineBackend final : public ConvBackend {
 public:
  EngineBackend(std::unique_ptr<cuda::ConvGraph> graph,
                const cuda::GraphTarget* target, cuda::Device* device)
      : graph_(std::move(graph)), target_(target), device_(device) {}

  absl::string_view name() const override { return "engine"; }
  BackendCapabilities capabilities() const override {
    return EveryConvolution();
  }
  absl::StatusOr<std::unique_ptr<Plan>> PlanConvolution(
      const ConvOperation& operation, const PlanOptions&) const override {
    return std::make_unique<GraphPlan>(operation, graph_.get(), target_,
                                       device_);
  }

 private:
  const std::unique_ptr<cuda::ConvGraph> graph_;
  const cuda::GraphTarget* const target_;
  cuda::Device* const device_;
};

testing::AssertionResult ComputesExactly(const Backend& backend,
                                         const ConvOperation& operation) {
  ExactOperands operands;
  for (Operand which : kAllOperands) {
    if (!operation.operand(which)) continue;
    const auto i = static_cast<size_t>(which);
    operands[i] = IntegerFill(ElementCount(*operation.operand(which)), i);
  }
  const auto results = RunChecked(backend, operation, operands);
  if (!results.ok()) return testing::AssertionFailure() << results.status();
  return IsExactly(
      {&operation, &operation.results[0], (*results)[0].data()},
      ExpectExact(operation, operation.results[0].which, operands));
}

void CheckEngines(const ConvProblem& problem, std::pair<Pass, Result> pass,
                  std::pair<DataType, DataType> dtypes, const Formats& formats,
                  bool allows_forbidden, const cuda::GraphTarget& target,
                  cuda::Device* device) {
  const ConvOperation operation =
      OperationOf(problem, pass.second, dtypes, formats);
  cuda::GraphSpec spec{pass.first,     Lowering(problem).problem(),
                       dtypes.first,   dtypes.second,
                       formats.format,
                       /*bias=*/false, kMaxWorkspaceBytes,
                       /*engine=*/"",  allows_forbidden};
  const auto engines = cuda::ConvGraph::ListEngines(
      spec, target, {kMostEngines, kMostOfOneNumber});
  if (!engines.ok()) return;
  for (const std::string& engine : *engines) {
    spec.engine = engine;
    auto graph = cuda::ConvGraph::Make(spec, target);
    if (!graph.ok() || (*graph)->engine() != engine) continue;
    const EngineBackend backend(*std::move(graph), &target, device);
    const auto exact = ComputesExactly(backend, operation);
    testing::AssertionResult apart = testing::AssertionSuccess();
    if (exact && operation.nominal_macs() <= kMostMacsWithInf) {
      apart = KeepsNonfiniteApart(backend, operation);
    }
    std::string why = !exact ? exact.message() : apart ? "" : apart.message();
    for (char& letter : why) letter = letter == '\n' ? ' ' : letter;
    std::printf("%s\t%s\t%s>%s\t%s\t%s\t%s\t%s\n",
                !exact  ? "INEXACT"
                : apart ? "ok"
                        : "LEAKS",
                std::string(NameOf(pass.first)).c_str(),
                std::string(NameOf(dtypes.first)).c_str(),
                std::string(NameOf(dtypes.second)).c_str(),
                std::string(NameOf(formats.format)).c_str(), engine.c_str(),
                ToString(problem).c_str(), why.c_str());
    std::fflush(stdout);
    if (device->is_lost()) std::exit(1);
  }
}

absl::Status CheckShare(int share, int shares, bool allows_forbidden) {
  std::vector<ConvProblem> problems;
  for (const char* text : kProblems) {
    ASSIGN_OR_RETURN(problems.emplace_back(), Parse(text));
  }
  RETURN_IF_ERROR(cuda::ListDevices().status());
  cuda::Device device(cuda::MakeDeviceCalls(0));
  RETURN_IF_ERROR(device.Check(device.calls().Select(), "device"));
  ASSIGN_OR_RETURN(const cuda::GraphTarget target,
                   cuda::GraphTarget::OfCurrentDevice());
  int index = 0;
  for (const auto& formats : kFormats) {
    for (const auto& dtypes : kDtypes) {
      for (const auto& pass : kPasses) {
        for (const ConvProblem& problem : problems) {
          if (index++ % shares != share) continue;
          CheckEngines(problem, pass, dtypes, formats, allows_forbidden, target,
                       &device);
        }
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace convgrad

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const int share = argc > 2 ? std::atoi(argv[1]) : 0;
  const int shares = argc > 2 ? std::atoi(argv[2]) : 1;
  const bool is_all = argc > 3 && std::string(argv[3]) == "all";
  const absl::Status status = convgrad::CheckShare(share, shares, is_all);
  if (status.ok()) return 0;
  std::printf("skipped: %s\n", std::string(status.message()).c_str());
  return absl::IsFailedPrecondition(status) ? convgrad::kSkipped : 1;
}
