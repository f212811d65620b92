// `LibraryFusion` appends a convolution at inference by the library, with the
// steps after it: the library computes all of them before it writes the result.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "backends/core/convolution/conv_problem.h"
#include "backends/core/program/program.h"
#include "backends/kernels/operators/pointwise.h"
#include "backends/onednn/execution/onednn_library_step.h"
#include "backends/onednn/library/onednn_pass_desc.h"
#include "backends/onednn/networks/schedule/network_builder.h"
#include "backends/onednn/networks/steps/convolutions/network_conv_epilogue.h"
#include "backends/onednn/networks/steps/convolutions/network_folded_norm.h"

namespace convgrad::onednn {

// The steps that are fused. What it refers to must outlive the fusion.
struct FusedSteps {
  const ProgramStep& convolution;
  const ConvProblem& problem;
  const ProgramStep* norm;  // a batch_norm of running statistics; null: none
  std::string addend;       // "": none
  Pointwise activation;
  std::string result;  // the last step's
};

// The batch_norm's scale is multiplied into the weights of an f32 convolution,
// and its shift is the bias, which costs nothing. In bf16, rounding the scaled
// weights would change the results, so they are post-ops.
class LibraryFusion {
 public:
  // The library's implementation in one dtype.
  struct Way {
    DataType dtype;
    // The step's, or one on padded images.
    ConvProblem problem;
    bool is_padded = false;
    // The result, without memory.
    NetworkTensor like = {};
    // Whether the weight is scaled and the shift is the bias.
    bool scales_weight = false;
    bool has_bias = false;
    // The caller's input; nullopt if the input is a value of the program.
    std::optional<LibraryTensor> callers = std::nullopt;
    ConvEpilogue epilogue = {};
    ConvDescs descs = {};
    dnnl::primitive_desc_base pass = {};
  };

  explicit LibraryFusion(FusedSteps steps) : steps_(std::move(steps)) {}

  // Returns nullopt if the library has only plain loops. Throws dnnl::error.
  std::optional<Way> WayIn(DataType dtype, NetworkBuilder* builder) const;

  // Appends the fused step. Throws dnnl::error.
  void Append(const Way& way, NetworkBuilder* builder) const;

 private:
  const std::string& x() const { return steps_.convolution.operands[0]; }
  const std::string& weight() const { return steps_.convolution.operands[1]; }
  // Returns "" if there is none.
  std::string bias() const;
  LibraryTensor Data(const Way& way, NetworkBuilder* builder) const;
  LibraryTensor Weight(const Way& way, NetworkBuilder* builder) const;
  void ReadPostOps(const Way& way, const FoldedNorm& norm,
                   NetworkBuilder* builder, LibraryStep* step) const;

  FusedSteps steps_;
};

}  // namespace convgrad::onednn
