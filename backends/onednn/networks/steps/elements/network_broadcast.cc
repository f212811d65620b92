// add and mul where the second operand has one number per channel, or per image
// and channel; and mul of equal shapes.
#include <memory>
#include <string>
#include <vector>

#include "backends/kernels/operators/batch_norm.h"
#include "backends/kernels/operators/channel_scale.h"
#include "backends/kernels/operators/pointwise.h"
#include "backends/onednn/networks/schedule/network_groups.h"
#include "backends/onednn/networks/steps/elements/network_repeated.h"
#include "backends/onednn/networks/steps/network_operator.h"

namespace convgrad::onednn {
namespace {

// Numbers that are the same in all runs: `value` for each channel, zero for
// padding.
std::shared_ptr<const std::vector<float>> ConstantNumbers(
    const ChannelBlocks& blocks, float value) {
  std::vector<float> numbers(blocks.padded_channels());
  std::fill_n(numbers.begin(), blocks.channels, value);
  return std::make_shared<const std::vector<float>>(std::move(numbers));
}

class Product final : public NetworkGroup {
 public:
  explicit Product(const ProgramStep& step) : step_(step) {}

  absl::Status Forward(NetworkBuilder* builder) override {
    const NetworkTensor y = builder->AddValue(step_.result);
    a_ = builder->Value(step_.operands[0], y.form).buffer;
    b_ = builder->Value(step_.operands[1], y.form).buffer;
    AddProduct(a_, b_, y.buffer, builder);
    return absl::OkStatus();
  }

  absl::Status Backward(NetworkBuilder* builder) override {
    const BufferId dy = builder->GradientOf(step_.result);
    if (dy == kNoBuffer) return absl::OkStatus();
    const Form form = builder->Like(step_.result).form;
    AddProduct(dy, b_, builder->NewGradient(step_.operands[0], form), builder);
    AddProduct(dy, a_, builder->NewGradient(step_.operands[1], form), builder);
    return absl::OkStatus();
  }

 private:
  void AddProduct(BufferId a, BufferId b, BufferId y,
                  NetworkBuilder* builder) const {
    builder->schedule().Add(
        {.kind = "mul",
         .reads = {a, b},
         .writes = {y},
         .function = [=, blocks = builder->Like(step_.result).blocks](
                         const RunContext& context) {
           Multiply(blocks, {context.At(a), context.At(b), context.At(y)},
                    [&](int64_t count, auto part) {
                      context.ForParts(count, part);
                    });
         }});
  }

  const ProgramStep& step_;
  BufferId a_ = kNoBuffer, b_ = kNoBuffer;
};

class Broadcast final : public NetworkGroup {
 public:
  explicit Broadcast(const ProgramStep& step)
      : step_(step), is_product_(step.op == Operator::kMul) {}

  absl::Status Forward(NetworkBuilder* builder) override {
    const NetworkTensor y = builder->AddValue(step_.result);
    form_ = y.form;
    const NetworkTensor a = builder->Value(step_.operands[0], form_);
    const NetworkTensor b = builder->Value(step_.operands[1], form_);
    blocks_ = a.blocks;
    b_blocks_ = b.blocks;
    a_ = a.buffer;
    zeros_ = ConstantNumbers(blocks_, 0.0f);
    constants_ = is_product_ ? ConstantNumbers(blocks_, -0.0f)
                             : ConstantNumbers(blocks_, 1.0f);
    numbers_ = builder->schedule().AddBuffer(
        b_blocks_.batch * blocks_.padded_channels() * int64_t{sizeof(float)});
    AddNumbers(b.buffer, builder);
    AddScale(a.buffer, y.buffer, builder);
    return absl::OkStatus();
  }

  absl::Status Backward(NetworkBuilder* builder) override {
    const BufferId dy = builder->GradientOf(step_.result);
    if (dy == kNoBuffer) return absl::OkStatus();
    if (is_product_) {
      AddScale(dy, builder->NewGradient(step_.operands[0], form_), builder);
    } else {
      builder->AddGradient(step_.operands[0], dy, form_);
    }
    AddSums(dy, builder->NewGradient(step_.operands[1], form_), builder);
    return absl::OkStatus();
  }

 private:
  // Appends what spreads b over the channels, an image of it after the other.
  void AddNumbers(BufferId b, NetworkBuilder* builder) const {
    builder->schedule().Add(
        {.kind = is_product_ ? "mul" : "add",
         .reads = {b},
         .writes = {numbers_},
         .function = [=, blocks = blocks_, from = b_blocks_,
                      numbers = numbers_](const RunContext& context) {
           const int64_t padded = blocks.padded_channels();
           for (int64_t i = 0; i < from.batch * padded; ++i) {
             const int64_t n = i / padded, c = i % padded;
             const int64_t at =
                 n * from.padded_channels() + (from.channels == 1 ? 0 : c);
             const float value =
                 c < blocks.channels
                     ? static_cast<float>(LoadAsDouble(
                           from.dtype,
                           context.At(b) + at * ByteSizeOf(from.dtype)))
                     : 0;
             context.Write<float>(numbers)[i] = value;
           }
         }});
  }

  void AddScale(BufferId x, BufferId y, NetworkBuilder* builder) const {
    builder->schedule().Add(
        {.kind = is_product_ ? "mul" : "add",
         .reads = {x, numbers_},
         .writes = {y},
         // Each channel's two constants.
         .table_bytes = 2 * blocks_.padded_channels() * int64_t{sizeof(float)},
         .function = [=, blocks = blocks_, images = b_blocks_.batch,
                      numbers = numbers_, zeros = zeros_,
                      constants = constants_,
                      is_product = is_product_](const RunContext& context) {
           const auto* own = context.Read<float>(numbers);
           // The other two may hold one image's numbers alone.
           for (int64_t n = 0; n < images; ++n) {
             ChannelBlocks part = blocks;
             part.batch = images == 1 ? blocks.batch : 1;
             const ChannelScale scale = {
                 zeros->data(),
                 is_product ? own + n * part.padded_channels()
                            : constants->data(),
                 is_product ? constants->data()
                            : own + n * part.padded_channels()};
             const int64_t offset = n * part.bytes();
             ScaleChannels(
                 part, scale,
                 {.x = context.At(x) + offset, .y = context.At(y) + offset},
                 [&](int64_t count, auto parts) {
                   context.ForParts(count, parts);
                 });
           }
         }});
  }

  void AddSums(BufferId dy, BufferId db, NetworkBuilder* builder) const {
    const int64_t padded = blocks_.padded_channels();
    const BufferId sums = builder->schedule().AddBuffer(
        (2 * padded + BatchNormScratch(blocks_)) * int64_t{sizeof(double)});
    Step step = {.kind = is_product_ ? "mul" : "add",
                 .reads = {dy},
                 .writes = {db, sums}};
    if (is_product_) step.reads.push_back(a_);
    step.function = [=, blocks = blocks_, to = b_blocks_, a = a_,
                     is_product = is_product_](const RunContext& context) {
      auto* sum = context.Write<double>(sums);
      ChannelBlocks part = blocks;
      part.batch = to.batch == 1 ? blocks.batch : 1;
      for (int64_t n = 0; n < to.batch; ++n) {
        SumChannels(
            part, context.At(dy) + n * part.bytes(),
            is_product ? context.At(a) + n * part.bytes() : nullptr,
            sum + 2 * padded,
            [&](int64_t count, auto parts) { context.ForParts(count, parts); },
            {sum, sum + padded});
        StoreSums(
            is_product ? sum + padded : sum, blocks.channels, to,
            context.At(db) + n * to.padded_channels() * ByteSizeOf(to.dtype));
      }
    };
    builder->schedule().Add(std::move(step));
  }

  // Writes an image of b's gradient: the sums, or their sum.
  static void StoreSums(const double* sums, int64_t count,
                        const ChannelBlocks& to, std::byte* image) {
    double total = 0;
    for (int64_t c = 0; c < count; ++c) total += sums[c];
    for (int64_t c = 0; c < to.padded_channels(); ++c) {
      const double value =
          c >= to.channels ? 0 : (to.channels == 1 ? total : sums[c]);
      StoreRounded(to.dtype, value, image + c * ByteSizeOf(to.dtype));
    }
  }

  const ProgramStep& step_;
  const bool is_product_;
  Form form_ = Form::kImage;
  ChannelBlocks blocks_, b_blocks_;
  BufferId a_ = kNoBuffer;
  BufferId numbers_ = kNoBuffer;  // b, by image and padded channel
  std::shared_ptr<const std::vector<float>> zeros_, constants_;
};

// Of two operands with different dims: the way follows from the form.
class AnyBroadcast final : public NetworkGroup {
 public:
  explicit AnyBroadcast(const ProgramStep& step) : step_(step) {}

  absl::Status Forward(NetworkBuilder* builder) override {
    const NetworkTensor y = builder->Like(step_.result);
    const ChannelBlocks b = builder->Like(step_.operands[1], y.form).blocks;
    const bool is_by_channel =
        b.spatial == 1 &&
        (b.batch == 1 || (b.batch == y.blocks.batch &&
                          (y.form == Form::kImage || y.dims.size() == 2))) &&
        (b.channels == 1 || b.channels == y.blocks.channels);
    if (is_by_channel) {
      group_ = std::make_unique<Broadcast>(step_);
    } else {
      group_ = MakeRepeated(step_);
    }
    return group_->Forward(builder);
  }
  absl::Status Backward(NetworkBuilder* builder) override {
    return group_->Backward(builder);
  }

 private:
  const ProgramStep& step_;
  std::unique_ptr<NetworkGroup> group_;
};

std::unique_ptr<NetworkGroup> MakeSum(const convgrad::Program& program,
                                      const ProgramShapes& shapes,
                                      const GroupSteps& steps) {
  if (HasEqualShapes(program.steps[steps.first], shapes)) {
    return MakeAdd(program, steps);
  }
  return MakeOfStep<AnyBroadcast>(program, shapes, steps);
}

std::unique_ptr<NetworkGroup> MakeProduct(const convgrad::Program& program,
                                          const ProgramShapes& shapes,
                                          const GroupSteps& steps) {
  return HasEqualShapes(program.steps[steps.first], shapes)
             ? MakeOfStep<Product>(program, shapes, steps)
             : MakeOfStep<AnyBroadcast>(program, shapes, steps);
}

int64_t TableBytes(const ProgramStep& step, const ProgramShapes& shapes,
                   bool /*has_backward*/) {
  return HasEqualShapes(step, shapes)
             ? 0
             : ChannelTableBytes(shapes.dims.at(step.operands[0]));
}

}  // namespace

std::vector<NetworkOperator> NetworkArithmetic() {
  return {
      {.op = Operator::kAdd, .make = &MakeSum, .table_bytes = &TableBytes},
      {.op = Operator::kMul, .make = &MakeProduct, .table_bytes = &TableBytes}};
}

}  // namespace convgrad::onednn
