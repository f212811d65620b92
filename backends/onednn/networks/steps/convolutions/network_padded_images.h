// `PaddedImages` gives images of three channels a fourth one of zeros. The
// library's bf16 instructions take channels in pairs: with an odd number, the
// last channel is paired with its neighbour in memory (backends/gotchas.md).
#pragma once

#include <string>

#include "backends/core/convolution/conv_problem.h"
#include "backends/core/program/program.h"
#include "backends/onednn/execution/onednn_library_step.h"
#include "backends/onednn/networks/schedule/network_builder.h"

namespace convgrad::onednn {

// Returns whether a convolution with a result like `y` is computed in bf16 on
// padded images: forward, and backward-weight if there is a backward. Throws
// dnnl::error.
bool PadsImages(const ConvProblem& problem, const NetworkTensor& y,
                const NetworkBuilder& builder);

// Returns the problem on padded images.
ConvProblem PaddedProblem(ConvProblem problem);

// Returns the desc of padded images in bf16, and appends the step that makes
// them from the value `x`. `problem` is the padded one.
dnnl::memory::desc PaddedImagesDesc(const ConvProblem& problem);
LibraryTensor PaddedImages(const std::string& x, const ConvProblem& problem,
                           NetworkBuilder* builder);

// Appends the step that makes the weight for padded images, f32 and row-major:
// 0 for the fourth channel.
LibraryTensor PaddedWeight(const std::string& weight,
                           const ConvProblem& problem, NetworkBuilder* builder);

// A convolution of images with three channels in training.
class PaddedConvolution {
 public:
  // `problem` isn't padded. Both arguments must outlive this.
  PaddedConvolution(const ProgramStep& step, const ConvProblem& problem)
      : step_(step), problem_(problem) {}

  // Append the forward and, from the result's gradient `dy`, the
  // backward-weight. Errors as AddConvPass.
  void AddForward(NetworkBuilder* builder);
  void AddBackwardWeight(const NetworkTensor& dy,
                         NetworkBuilder* builder) const;

 private:
  const ProgramStep& step_;
  const ConvProblem& problem_;
  LibraryTensor images_;
};

}  // namespace convgrad::onednn
