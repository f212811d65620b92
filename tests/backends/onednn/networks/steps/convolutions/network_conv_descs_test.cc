// Tests which convolutions the library may compute in networks.
#include "backends/onednn/networks/steps/convolutions/network_conv_descs.h"

#include "backends/onednn/library/onednn_types.h"
#include "gtest/gtest.h"

namespace convgrad::onednn {
namespace {

using dnnl::memory;

// Returns whether there is an implementation of a forward with one output, in
// blocks of 8 channels.
bool HasForward(int64_t pad, int64_t dilation) {
  ConvProblem problem;
  problem.batch = 1;
  problem.in_channels = problem.out_channels = 16;
  problem.axes = {{.in = 7,
                   .kernel = 3,
                   .stride = 7 + 2 * pad,
                   .dilation = dilation,
                   .pad_begin = pad,
                   .pad_end = pad,
                   .out = 1}};
  const auto f32 = memory::data_type::f32;
  const ConvDescs descs = {
      {{1, 16, 7}, f32, memory::format_tag::nCw8c},
      {WeightDimsOf(problem), f32, memory::format_tag::any},
      {{1, 16, 1}, f32, memory::format_tag::any},
      {}};
  return static_cast<bool>(MakePassDesc(Pass::kForward, problem, descs));
}

TEST(NetworkConvDescs, NoWindowIsTruncated) {
  EXPECT_TRUE(HasForward(100, 1));
  for (const int64_t pad : {int64_t{1} << 30, int64_t{1} << 32,
                            (int64_t{1} << 40) + 1, int64_t{1} << 61}) {
    EXPECT_FALSE(HasForward(pad, 1)) << pad;
    EXPECT_FALSE(HasForward(pad, pad)) << pad;
  }
}

}  // namespace
}  // namespace convgrad::onednn
