// Arithmetic and comparisons of two operands: of equal shapes, an add with or
// without a ReLU among them; of one that has a number per channel, or per image
// and channel; of one that is repeated in another way; and of a constant.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/kernels/operators/batch_norm.h"
#include "backends/kernels/operators/channel_scale.h"
#include "backends/kernels/operators/combine.h"
#include "backends/onednn/networks/schedule/network_groups.h"
#include "backends/onednn/networks/schedule/network_guard.h"
#include "backends/onednn/networks/steps/elements/network_activation.h"
#include "backends/onednn/networks/steps/elements/network_repeated.h"
#include "backends/onednn/networks/steps/network_operator.h"

namespace convgrad::onednn {
namespace {

// The rule by which an operand's gradient follows from that of the result, dy.
enum class Rule { kNone, kPass, kNegate, kCombine };

struct Gradient {
  Rule rule = Rule::kNone;
  // With kCombine: of dy with the other operand, or with a and b (IsOfThree).
  Combination combination = Combination::kAdd;
};

constexpr Gradient kPassed = {Rule::kPass};     // dy
constexpr Gradient kNegated = {Rule::kNegate};  // -dy
constexpr Gradient By(Combination combination) {
  return {Rule::kCombine, combination};
}

// One operator.
struct BinaryRow {
  Operator op;
  Combination combination;
  Gradient of_a = {}, of_b = {};
  // The activation that computes the operator if a constant stands for b. kNone
  // for comparisons, whose constant becomes an operand with one number.
  Activation of_constant = Activation::kNone;
};

constexpr BinaryRow kRows[] = {
    {Operator::kAdd, Combination::kAdd, kPassed, kPassed, Activation::kShift},
    {Operator::kSub, Combination::kSub, kPassed, kNegated, Activation::kShift},
    {Operator::kMul, Combination::kMul, By(Combination::kMul),
     By(Combination::kMul), Activation::kScale},
    {Operator::kDiv, Combination::kDiv, By(Combination::kDiv),
     By(Combination::kDivisorGradient), Activation::kQuotient},
    {Operator::kMaximum, Combination::kMaximum,
     By(Combination::kNotLessGradient), By(Combination::kNotGreaterGradient)},
    {Operator::kMinimum, Combination::kMinimum,
     By(Combination::kNotGreaterGradient), By(Combination::kNotLessGradient)},
    {Operator::kPrelu, Combination::kPrelu, By(Combination::kPreluGradient),
     By(Combination::kSlopeGradient)},
    {Operator::kEq, Combination::kEq},
    {Operator::kLt, Combination::kLt},
    {Operator::kLe, Combination::kLe},
    {Operator::kGt, Combination::kGt},
    {Operator::kGe, Combination::kGe},
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
    a_ = builder->Value(step_.operands[0], y_.form).buffer;
    const std::string& b = OperandAt(step_, 1);
    if (b.empty()) {
      is_broadcast_ = true;
      b_blocks_.batch = 1;
      b_ = AddChannelNumbers(NameOf(step_.op),
                             static_cast<float>(FloatAttribute(step_, "other")),
                             y_.blocks, builder);
    } else {
      ReadB(b, builder);
    }
    AddCombination(has_relu_ ? Combination::kAddRelu : row_.combination,
                   {a_, b_, y_.buffer}, builder);
    if (row_.of_a.rule == Rule::kNone) CheckOperands(builder);
  }

  void Backward(NetworkBuilder* builder) override {
    if (row_.of_a.rule == Rule::kNone) return;
    BufferId dy = builder->GradientOf(result_).buffer;
    if (has_relu_) {
      const BufferId masked = builder->AddBuffer(y_.blocks.bytes());
      AddActivateGradient(y_.blocks, {Activation::kRelu}, dy, y_.buffer, masked,
                          builder);
      dy = masked;
    }
    AddOperandGradient(0, row_.of_a, dy, b_, builder);
    if (is_broadcast_) {
      AddSums(dy, builder);
    } else if (has_equal_shapes_) {
      AddOperandGradient(1, row_.of_b, dy, a_, builder);
    } else {
      AddRepeatedGradient(dy, builder);
    }
  }

 private:
  struct Buffers {
    BufferId a, b, y;
    BufferId dy = kNoBuffer;
  };

  // Finds b, and how it is repeated.
  void ReadB(const std::string& b, NetworkBuilder* builder) {
    NetworkTensor own = builder->Like(b, y_.form);
    b_blocks_ = own.blocks;
    is_broadcast_ = !has_equal_shapes_ && IsByChannel(own);
    if (is_broadcast_) {
      own.buffer = builder->Value(b, y_.form).buffer;
      b_ = AddChannelNumbers(NameOf(step_.op), own, y_.blocks, builder);
      return;
    }
    if (y_.form == Form::kRows && !has_equal_shapes_) {
      runs_ = RunsOf(own.dims, y_.dims);
    }
    b_ = has_equal_shapes_ || runs_ ? builder->Value(b, y_.form).buffer
                                    : AddRepeated(b, y_, builder);
  }

  // Makes the plan repeat a run in which a fused step may have written NaN by
  // mistake, because a comparison hides it.
  void CheckOperands(NetworkBuilder* builder) const {
    if (!builder->may_repeat()) return;
    for (const std::string& operand : step_.operands) {
      if (operand.empty()) continue;
      builder->RepeatIf(AddFiniteCheck(
          y_.blocks.dtype, builder->Value(operand, y_.form).buffer, builder));
    }
  }

  // Returns whether `b` has a number per channel, or per image and channel.
  bool IsByChannel(const NetworkTensor& b) const {
    const bool may_be_by_image = y_.form != Form::kRows || b.dims.size() == 2;
    return b.blocks.spatial == 1 &&
           (b.blocks.batch == 1 ||
            (may_be_by_image && b.blocks.batch == y_.blocks.batch)) &&
           (b.blocks.channels == 1 || b.blocks.channels == y_.blocks.channels);
  }

  void AddCombination(Combination combination, const Buffers& buffers,
                      NetworkBuilder* builder) const {
    const bool has_numbers = is_broadcast_ && buffers.b == b_;
    const int64_t stride =
        b_blocks_.batch == 1 ? 0 : y_.blocks.padded_channels();
    const auto runs = buffers.b == b_ ? runs_ : std::nullopt;
    builder->Add(NameOf(step_.op), {buffers.a, buffers.b, buffers.dy},
                 {buffers.y},
                 [=, blocks = y_.blocks](const RunContext& context) {
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
                     return CombineRuns(*runs, combination, tensors,
                                        blocks.dtype, context);
                   }
                   Combine(blocks, combination, tensors, context.parts());
                 });
  }

  // Adds the gradient of an operand like a.
  void AddOperandGradient(size_t operand, const Gradient& gradient, BufferId dy,
                          BufferId other, NetworkBuilder* builder) const {
    const std::string& name = step_.operands[operand];
    if (gradient.rule == Rule::kPass) {
      return builder->AddGradient(name, dy, y_.form);
    }
    WriteGradient(gradient, dy, other,
                  builder->NewGradient(name, y_.form).buffer, builder);
  }

  // Appends what writes such a gradient. Requires: kNegate or kCombine.
  void WriteGradient(const Gradient& gradient, BufferId dy, BufferId other,
                     BufferId result, NetworkBuilder* builder) const {
    if (gradient.rule == Rule::kNegate) {
      return AddActivation(y_.blocks, {Activation::kNeg}, dy, result, builder);
    }
    AddCombination(gradient.combination,
                   IsOfThree(gradient.combination) ? Buffers{a_, b_, result, dy}
                                                   : Buffers{dy, other, result},
                   builder);
  }

  void AddRepeatedGradient(BufferId dy, NetworkBuilder* builder) const {
    NetworkTensor gradient = y_;
    gradient.buffer = dy;
    if (row_.of_b.rule != Rule::kPass) {
      gradient.buffer = builder->AddBuffer(y_.blocks.bytes());
      WriteGradient(row_.of_b, dy, a_, gradient.buffer, builder);
    }
    AddSumsOfRepeated(gradient, step_.operands[1], builder);
  }

  // Appends the gradient of b in a broadcast: sums of dy, of dy * a, or of what
  // a maximum let through, each times a number that follows from b alone.
  void AddSums(BufferId dy, NetworkBuilder* builder) const {
    const BufferId db = builder->NewGradient(step_.operands[1], y_.form).buffer;
    const bool is_product =
        row_.op == Operator::kMul || row_.op == Operator::kDiv;
    if (row_.of_b.rule == Rule::kCombine && !is_product) {
      const BufferId passed = builder->AddBuffer(y_.blocks.bytes());
      AddCombination(row_.of_b.combination, {a_, b_, passed, dy}, builder);
      dy = passed;
    }
    const int64_t padded = y_.blocks.padded_channels();
    const BufferId sums =
        builder->AddArray<double>(2 * padded + BatchNormScratch(y_.blocks));
    builder->Add(
        NameOf(step_.op), {dy, b_, is_product ? a_ : kNoBuffer}, {db, sums},
        [=, op = row_.op, blocks = y_.blocks, to = b_blocks_, a = a_,
         b = b_](const RunContext& context) {
          auto* sum = context.Write<double>(sums);
          ChannelBlocks part = blocks;
          part.batch = to.batch == 1 ? blocks.batch : 1;
          for (int64_t n = 0; n < to.batch; ++n) {
            SumChannels(part, context.At(dy) + n * part.bytes(),
                        is_product ? context.At(a) + n * part.bytes() : nullptr,
                        sum + 2 * padded, context.parts(),
                        {sum, is_product ? sum + padded : nullptr});
            double* const own = is_product ? sum + padded : sum;
            for (int64_t c = 0; c < blocks.channels; ++c) {
              if (op == Operator::kSub) own[c] = -own[c];
              if (op != Operator::kDiv) continue;
              const double divisor = context.Read<float>(b)[n * padded + c];
              own[c] /= -divisor * divisor;
            }
            StoreChannelSums(own, blocks.channels, to,
                             context.At(db) + n * to.padded_channels() *
                                                  ByteSizeOf(to.dtype));
          }
        });
  }

  const ProgramStep& step_;
  const BinaryRow& row_;
  const std::string result_;
  const bool has_equal_shapes_;
  const bool has_relu_;
  ChannelBlocks b_blocks_;
  bool is_broadcast_ = false;  // by channel
  NetworkTensor y_;
  BufferId a_ = kNoBuffer;
  // The operand b. If it is broadcast: f32 by image and padded channel. If it
  // has runs: in its own layout.
  BufferId b_ = kNoBuffer;
  std::optional<RepeatedRuns> runs_;
};

std::unique_ptr<NetworkGroup> MakeBinary(const convgrad::Program& program,
                                         const ProgramShapes& shapes,
                                         const GroupSteps& steps) {
  const ProgramStep& step = program.steps[steps.first];
  const Activation of_constant = RowOf(step.op).of_constant;
  if (!OperandAt(step, 1).empty() || of_constant == Activation::kNone) {
    return std::make_unique<Binary>(program, shapes, steps);
  }
  const auto other = static_cast<float>(FloatAttribute(step, "other"));
  return MakeActivation(
      step, {of_constant, step.op == Operator::kSub ? -other : other});
}

}  // namespace

std::vector<NetworkOperator> NetworkArithmetic() {
  std::vector<NetworkOperator> rows;
  for (const BinaryRow& row : kRows) rows.push_back({row.op, &MakeBinary});
  return rows;
}

}  // namespace convgrad::onednn
