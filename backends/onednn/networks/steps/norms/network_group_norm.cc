// Implements group_norm as a batch_norm of one image with all images' channels.
// The channels of a group share their statistics.
#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "backends/kernels/operators/batch_norm.h"
#include "backends/onednn/networks/schedule/network_groups.h"
#include "backends/onednn/networks/steps/network_operator.h"
#include "backends/onednn/networks/steps/norms/network_small_norm.h"

namespace convgrad::onednn {
namespace {

constexpr absl::string_view kForwardKind = "group_norm forward";
constexpr absl::string_view kBackwardKind = "group_norm backward";

// The groups of the channels of all images.
struct Groups {
  int64_t images, channels, padded, size;

  int64_t all() const { return images * padded; }
  // Calls body(channel of an image, channel among all).
  template <class Body>
  void ForChannels(const Body& body) const {
    for (int64_t n = 0; n < images; ++n) {
      for (int64_t c = 0; c < channels; ++c) body(c, n * padded + c);
    }
  }
  // Calls body(first) with the first channel of each group.
  template <class Body>
  void ForGroups(const Body& body) const {
    for (int64_t n = 0; n < images; ++n) {
      for (int64_t c = 0; c < channels; c += size) body(n * padded + c);
    }
  }
  double MeanOf(const double* numbers, int64_t first) const {
    double sum = 0;
    for (int64_t c = first; c < first + size; ++c) sum += numbers[c];
    return sum / static_cast<double>(size);
  }
};

// Replaces means and variances of channels by those of their groups. Sets the
// variance of padding to 1, to prevent a division by 0.
void Share(const Groups& groups, double* means, double* variances) {
  groups.ForGroups([&](int64_t first) {
    const double mean = groups.MeanOf(means, first);
    for (int64_t c = first; c < first + groups.size; ++c) {
      const double distance = means[c] - mean;
      variances[c] += distance * distance;
    }
    const double variance = groups.MeanOf(variances, first);
    std::fill_n(means + first, groups.size, mean);
    std::fill_n(variances + first, groups.size, variance);
  });
  for (int64_t n = 1; n <= groups.images; ++n) {
    std::fill(variances + n * groups.padded - (groups.padded - groups.channels),
              variances + n * groups.padded, 1.0);
  }
}

// Multiplies sums of channels by gamma, and replaces them by their group's
// mean.
void WeighAndShare(const Groups& groups, const float* gamma, double* sums) {
  groups.ForGroups([&](int64_t first) {
    for (int64_t c = first; c < first + groups.size; ++c) sums[c] *= gamma[c];
    std::fill_n(sums + first, groups.size, groups.MeanOf(sums, first));
  });
}

class GroupNorm final : public NetworkGroup {
 public:
  explicit GroupNorm(const ProgramStep& step) : step_(step) {}

  void Forward(NetworkBuilder* builder) override {
    const NetworkTensor x = builder->Value(step_.operands[0]);
    const BufferId y = builder->AddValue(step_.result).buffer;
    x_ = x.buffer;
    groups_ = {x.blocks.batch, x.blocks.channels, x.blocks.padded_channels(),
               x.blocks.channels / IntAttribute(step_, "groups")};
    blocks_ = x.blocks;
    blocks_.batch = 1;
    blocks_.channels = groups_.all();
    means_ = AddDoubles(builder);
    variances_ = AddDoubles(builder);
    gamma_ = AddNumbers(1, 1, builder);
    beta_ = AddNumbers(2, 0, builder);
    const BufferId scratch = AddScratch(builder);
    builder->Add(kForwardKind, {x_}, {means_, variances_, scratch},
                 [=, blocks = blocks_, groups = groups_, x = x_, means = means_,
                  variances = variances_](const RunContext& context) {
                   auto* mean = context.Write<double>(means);
                   auto* variance = context.Write<double>(variances);
                   BatchNormStatistics(blocks, context.At(x),
                                       context.Write<double>(scratch),
                                       context.parts(), {mean, variance});
                   Share(groups, mean, variance);
                 });
    builder->Add(
        kForwardKind, {x_, means_, variances_, gamma_, beta_}, {y, scratch},
        [=, norm = Reader(scratch), x = x_](const RunContext& context) {
          RunForward(norm(context), {.x = context.At(x), .y = context.At(y)},
                     context.parts());
        });
  }

  void Backward(NetworkBuilder* builder) override {
    const BufferId dy = builder->GradientOf(step_.result).buffer;
    const BufferId products = AddDoubles(builder), sums = AddDoubles(builder);
    const BufferId scratch = AddScratch(builder);
    builder->Add(
        kBackwardKind, {dy, x_, means_, variances_, gamma_, beta_},
        {products, sums, scratch},
        [=, norm = Reader(scratch), x = x_](const RunContext& context) {
          RunGradientSums(
              norm(context), {.dy = context.At(dy), .x = context.At(x)},
              context.parts(),
              {context.Write<double>(products), context.Write<double>(sums)});
        });
    AddParameterGradient(1, products, builder);
    AddParameterGradient(2, sums, builder);
    AddInputGradient(dy, products, sums, builder);
  }

 private:
  BufferId AddDoubles(NetworkBuilder* builder) const {
    return builder->AddArray<double>(groups_.all());
  }
  BufferId AddScratch(NetworkBuilder* builder) const {
    return builder->AddArray<double>(BatchNormScratch(blocks_));
  }

  // Appends a step that repeats a parameter for each image, with 0 in padding.
  BufferId AddNumbers(size_t operand, float otherwise,
                      NetworkBuilder* builder) const {
    const BufferId parameter = builder->Parameter(OperandAt(step_, operand));
    const BufferId numbers = builder->AddArray<float>(groups_.all());
    builder->Add(kForwardKind, {parameter}, {numbers},
                 [=, groups = groups_](const RunContext& context) {
                   auto* to = context.Write<float>(numbers);
                   const auto* from = context.Read<float>(parameter);
                   std::fill_n(to, groups.all(), 0.0F);
                   groups.ForChannels([&](int64_t c, int64_t at) {
                     to[at] = from == nullptr ? otherwise : from[c];
                   });
                 });
    return numbers;
  }

  // Returns a function that makes the batch_norm of a run.
  std::function<BatchNorm(const RunContext&)> Reader(BufferId scratch) const {
    return [=, blocks = blocks_, means = means_, variances = variances_,
            gamma = gamma_, beta = beta_,
            epsilon = FloatAttribute(step_, "eps")](const RunContext& context) {
      return BatchNorm{.blocks = blocks,
                       .gamma = context.Read<float>(gamma),
                       .beta = context.Read<float>(beta),
                       .epsilon = epsilon,
                       .mean = context.Read<double>(means),
                       .variance = context.Read<double>(variances),
                       .has_weighted_sums = true,
                       .scratch = context.Write<double>(scratch)};
    };
  }

  void AddParameterGradient(size_t operand, BufferId sums,
                            NetworkBuilder* builder) const {
    const std::string& name = OperandAt(step_, operand);
    if (name.empty()) return;
    const BufferId gradient = builder->NewParameterGradient(name);
    builder->Add(kBackwardKind, {sums}, {gradient},
                 [=, groups = groups_](const RunContext& context) {
                   std::vector<double> totals(groups.channels);
                   groups.ForChannels([&](int64_t c, int64_t at) {
                     totals[c] += context.Read<double>(sums)[at];
                   });
                   std::copy(totals.begin(), totals.end(),
                             context.Write<float>(gradient));
                 });
  }

  void AddInputGradient(BufferId dy, BufferId products, BufferId sums,
                        NetworkBuilder* builder) const {
    const BufferId dx = builder->NewGradient(step_.operands[0]).buffer;
    const BufferId scratch = AddScratch(builder);
    const BufferId shared_products = AddDoubles(builder);
    const BufferId shared_sums = AddDoubles(builder);
    builder->Add(
        kBackwardKind,
        {dy, x_, means_, variances_, gamma_, beta_, products, sums},
        {dx, scratch, shared_products, shared_sums},
        [=, norm = Reader(scratch), groups = groups_, x = x_, gamma = gamma_,
         blocks = blocks_](const RunContext& context) {
          if (HasFewElements(blocks, groups.size)) {
            std::memset(context.At(dx), 0, blocks.bytes());
            groups.ForGroups([&](int64_t first) {
              WriteSmallGradient(norm(context), first, groups.size,
                                 {.dy = context.At(dy),
                                  .x = context.At(x),
                                  .dx = context.At(dx)});
            });
            return;
          }
          const auto share = [&](BufferId from, BufferId to) {
            auto* shared = context.Write<double>(to);
            std::copy_n(context.Read<double>(from), groups.all(), shared);
            WeighAndShare(groups, context.Read<float>(gamma), shared);
            return shared;
          };
          RunGradientInput(
              norm(context),
              {.dy = context.At(dy), .x = context.At(x), .dx = context.At(dx)},
              {share(products, shared_products), share(sums, shared_sums)},
              context.parts());
        });
  }

  const ProgramStep& step_;
  Groups groups_ = {};
  ChannelBlocks blocks_;  // one image with all channels
  BufferId x_ = kNoBuffer;
  BufferId means_ = kNoBuffer, variances_ = kNoBuffer;
  BufferId gamma_ = kNoBuffer, beta_ = kNoBuffer;
};

}  // namespace

std::vector<NetworkOperator> NetworkGroupNorm() {
  return {{Operator::kGroupNorm, &MakeOfStep<GroupNorm>}};
}

}  // namespace convgrad::onednn
