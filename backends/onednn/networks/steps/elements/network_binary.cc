// Arithmetic of two operands: of equal shapes, an add with or without a ReLU
// among them; of one that has a number per channel, or per image and channel;
// of one that is repeated in another way; and of a constant.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/kernels/operators/batch_norm.h"
#include "backends/kernels/operators/channel_scale.h"
#include "backends/kernels/operators/combine.h"
#include "backends/onednn/networks/schedule/network_groups.h"
#include "backends/onednn/networks/steps/elements/network_activation.h"
#include "backends/onednn/networks/steps/elements/network_repeated.h"
#include "backends/onednn/networks/steps/network_operator.h"

namespace convgrad::onednn {
namespace {

// How an operand's gradient follows from that of the result, dy.
enum class Rule {
  kPass,     // dy
  kNegate,   // -dy
  kCombine,  // dy combined with the other operand
  kAll,      // a combination of dy, a and b
};

struct Gradient {
  Rule rule;
  Combination combination = Combination::kAdd;  // of kCombine and kAll
};

// One operator.
struct BinaryRow {
  Operator op;
  Combination combination;
  Gradient of_a, of_b;
  // Of a constant in the place of b. kNone: no constant may be there.
  Activation of_constant = Activation::kNone;
};

constexpr BinaryRow kRows[] = {
    {Operator::kAdd,
     Combination::kAdd,
     {Rule::kPass},
     {Rule::kPass},
     Activation::kShift},
    {Operator::kSub,
     Combination::kSub,
     {Rule::kPass},
     {Rule::kNegate},
     Activation::kShift},
    {Operator::kMul,
     Combination::kMul,
     {Rule::kCombine, Combination::kMul},
     {Rule::kCombine, Combination::kMul},
     Activation::kScale},
    {Operator::kDiv,
     Combination::kDiv,
     {Rule::kCombine, Combination::kDiv},
     {Rule::kAll, Combination::kDivisorGradient},
     Activation::kQuotient},
    {Operator::kMaximum,
     Combination::kMaximum,
     {Rule::kAll, Combination::kNotLessGradient},
     {Rule::kAll, Combination::kNotGreaterGradient}},
    {Operator::kMinimum,
     Combination::kMinimum,
     {Rule::kAll, Combination::kNotGreaterGradient},
     {Rule::kAll, Combination::kNotLessGradient}},
    {Operator::kPrelu,
     Combination::kPrelu,
     {Rule::kAll, Combination::kPreluGradient},
     {Rule::kAll, Combination::kSlopeGradient}},
};

const BinaryRow& RowOf(Operator op) {
  size_t i = 0;
  while (kRows[i].op != op) ++i;
  return kRows[i];
}

class Binary final : public NetworkGroup {
 public:
  Binary(const convgrad::Program& program, const ProgramShapes& shapes,
         const GroupSteps& steps)
      : step_(program.steps[steps.first]),
        row_(RowOf(step_.op)),
        result_(program.steps[steps.last()].result),
        has_equal_shapes_(HasEqualShapes(step_, shapes)),
        has_relu_(steps.activation != GroupSteps::kNone) {}

  void Forward(NetworkBuilder* builder) override {
    y_ = builder->AddValue(result_);
    blocks_ = y_.blocks;
    a_ = builder->Value(step_.operands[0], y_.form).buffer;
    const std::string& b = step_.operands[1];
    NetworkTensor own_b = builder->Like(b, y_.form);
    b_blocks_ = own_b.blocks;
    is_broadcast_ = !has_equal_shapes_ && IsByChannel(own_b);
    if (has_equal_shapes_) {
      b_ = builder->Value(b, y_.form).buffer;
    } else if (is_broadcast_) {
      own_b.buffer = builder->Value(b, y_.form).buffer;
      b_ = AddChannelNumbers(NameOf(step_.op), own_b, blocks_,
                             &builder->schedule());
    } else {
      if (y_.form == Form::kRows) runs_ = RunsOf(own_b.dims, y_.dims);
      b_ = runs_ ? builder->Value(b, y_.form).buffer
                 : AddRepeated(b, y_, builder);
    }
    AddCombination(has_relu_ ? Combination::kAddRelu : row_.combination,
                   {a_, b_, y_.buffer}, builder);
  }

  void Backward(NetworkBuilder* builder) override {
    BufferId dy = builder->GradientOf(result_).buffer;
    if (has_relu_) {
      const BufferId masked = AddBuffer(builder);
      AddActivateGradient(blocks_, {Activation::kRelu}, dy, y_.buffer, masked,
                          &builder->schedule());
      dy = masked;
    }
    const std::string& a = step_.operands[0];
    const std::string& b = step_.operands[1];
    if (row_.of_a.rule == Rule::kPass) {
      builder->AddGradient(a, dy, y_.form);
    } else {
      AddOperandGradient(row_.of_a, dy, b_,
                         builder->NewGradient(a, y_.form).buffer, builder);
    }
    if (is_broadcast_) {
      AddSums(dy, builder);
    } else if (!has_equal_shapes_) {
      AddRepeatedGradient(dy, builder);
    } else if (row_.of_b.rule == Rule::kPass) {
      builder->AddGradient(b, dy, y_.form);
    } else {
      AddOperandGradient(row_.of_b, dy, a_,
                         builder->NewGradient(b, y_.form).buffer, builder);
    }
  }

 private:
  struct Buffers {
    BufferId a, b, y;
    BufferId dy = kNoBuffer;
  };

  // Returns whether `b` has a number per channel, or per image and channel.
  bool IsByChannel(const NetworkTensor& b) const {
    const bool may_be_by_image = y_.form != Form::kRows || b.dims.size() == 2;
    return b.blocks.spatial == 1 &&
           (b.blocks.batch == 1 ||
            (may_be_by_image && b.blocks.batch == blocks_.batch)) &&
           (b.blocks.channels == 1 || b.blocks.channels == blocks_.channels);
  }

  BufferId AddBuffer(NetworkBuilder* builder) const {
    return builder->schedule().AddBuffer(blocks_.bytes());
  }

  void AddCombination(Combination combination, const Buffers& buffers,
                      NetworkBuilder* builder) const {
    Step step = {.kind = NameOf(step_.op),
                 .reads = {buffers.a, buffers.b, buffers.dy},
                 .writes = {buffers.y}};
    const bool has_numbers = is_broadcast_ && buffers.b == b_;
    const int64_t stride = b_blocks_.batch == 1 ? 0 : blocks_.padded_channels();
    const auto runs = buffers.b == b_ ? runs_ : std::nullopt;
    step.function = [=, blocks = blocks_](const RunContext& context) {
      Combined tensors = {.a = context.At(buffers.a),
                          .y = context.At(buffers.y),
                          .dy = context.At(buffers.dy)};
      if (has_numbers) {
        tensors.numbers = context.Read<float>(buffers.b);
        tensors.image_stride = stride;
      } else {
        tensors.b = context.At(buffers.b);
      }
      if (runs) {
        return CombineRuns(*runs, combination, tensors, blocks.dtype, context);
      }
      Combine(blocks, combination, tensors, context.parts());
    };
    builder->schedule().Add(std::move(step));
  }

  // Appends what writes the gradient of an operand like a. Requires: not kPass.
  void AddOperandGradient(const Gradient& gradient, BufferId dy, BufferId other,
                          BufferId result, NetworkBuilder* builder) const {
    switch (gradient.rule) {
      case Rule::kNegate:
        return AddActivation(blocks_, {Activation::kNeg}, dy, result,
                             &builder->schedule());
      case Rule::kCombine:
        return AddCombination(gradient.combination, {dy, other, result},
                              builder);
      default:
        AddCombination(gradient.combination, {a_, b_, result, dy}, builder);
    }
  }

  void AddRepeatedGradient(BufferId dy, NetworkBuilder* builder) const {
    NetworkTensor gradient = y_;
    gradient.buffer = dy;
    if (row_.of_b.rule != Rule::kPass) {
      gradient.buffer = AddBuffer(builder);
      AddOperandGradient(row_.of_b, dy, a_, gradient.buffer, builder);
    }
    AddSumsOfRepeated(gradient, step_.operands[1], builder);
  }

  // Appends the gradient of b in a broadcast: sums of dy, of dy * a, or of what
  // a maximum let through, each times a number that follows from b alone.
  void AddSums(BufferId dy, NetworkBuilder* builder) const {
    const BufferId db = builder->NewGradient(step_.operands[1], y_.form).buffer;
    const bool is_product =
        row_.op == Operator::kMul || row_.op == Operator::kDiv;
    if (row_.of_b.rule == Rule::kAll && !is_product) {
      const BufferId passed = AddBuffer(builder);
      AddCombination(row_.of_b.combination, {a_, b_, passed, dy}, builder);
      dy = passed;
    }
    const int64_t padded = blocks_.padded_channels();
    const BufferId sums = builder->schedule().AddArray<double>(
        2 * padded + BatchNormScratch(blocks_));
    Step step = {
        .kind = NameOf(step_.op), .reads = {dy, b_}, .writes = {db, sums}};
    if (is_product) step.reads.push_back(a_);
    if (row_.op == Operator::kDiv) step.reads.push_back(b_);
    step.function = [=, op = row_.op, blocks = blocks_, to = b_blocks_, a = a_,
                     b = b_](const RunContext& context) {
      auto* sum = context.Write<double>(sums);
      ChannelBlocks part = blocks;
      part.batch = to.batch == 1 ? blocks.batch : 1;
      for (int64_t n = 0; n < to.batch; ++n) {
        SumChannels(part, context.At(dy) + n * part.bytes(),
                    is_product ? context.At(a) + n * part.bytes() : nullptr,
                    sum + 2 * padded, context.parts(), {sum, sum + padded});
        double* const own = is_product ? sum + padded : sum;
        for (int64_t c = 0; c < blocks.channels; ++c) {
          if (op == Operator::kSub) own[c] = -own[c];
          if (op != Operator::kDiv) continue;
          const double divisor = context.Read<float>(b)[n * padded + c];
          own[c] /= -divisor * divisor;
        }
        StoreChannelSums(
            own, blocks.channels, to,
            context.At(db) + n * to.padded_channels() * ByteSizeOf(to.dtype));
      }
    };
    builder->schedule().Add(std::move(step));
  }

  const ProgramStep& step_;
  const BinaryRow& row_;
  const std::string result_;
  const bool has_equal_shapes_;
  const bool has_relu_;
  ChannelBlocks blocks_, b_blocks_;
  bool is_broadcast_ = false;  // by channel
  NetworkTensor y_;
  BufferId a_ = kNoBuffer;
  // Of a broadcast, f32 by image and padded channel. Of runs, as b lies.
  BufferId b_ = kNoBuffer;
  std::optional<RepeatedRuns> runs_;
};

std::unique_ptr<NetworkGroup> MakeBinary(const convgrad::Program& program,
                                         const ProgramShapes& shapes,
                                         const GroupSteps& steps) {
  const ProgramStep& step = program.steps[steps.first];
  if (!OperandAt(step, 1).empty()) {
    return std::make_unique<Binary>(program, shapes, steps);
  }
  const auto other = static_cast<float>(FloatAttribute(step, "other"));
  return MakeActivation(step, {RowOf(step.op).of_constant,
                               step.op == Operator::kSub ? -other : other});
}

}  // namespace

std::vector<NetworkOperator> NetworkArithmetic() {
  std::vector<NetworkOperator> rows;
  for (const BinaryRow& row : kRows) rows.push_back({row.op, &MakeBinary});
  return rows;
}

}  // namespace convgrad::onednn
