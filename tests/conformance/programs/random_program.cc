#include "tests/conformance/programs/random_program.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "tests/conformance/programs/random_steps.h"

namespace convgrad::testing_support {
namespace {

std::vector<const OperatorSpec*> OperatorsThat(
    bool (*fit)(const OperatorSpec& spec)) {
  std::vector<const OperatorSpec*> specs;
  for (const OperatorSpec& spec : Operators()) {
    if (fit(spec)) specs.push_back(&spec);
  }
  return specs;
}

// Returns whether an operator is an element-wise function of one value.
bool IsFunction(const OperatorSpec& spec) {
  return spec.infer == nullptr && spec.operands.size() == 1 && !spec.is_random;
}

// Returns whether an operator takes two values of the same shape and isn't a
// comparison.
bool IsJoin(const OperatorSpec& spec) {
  return spec.operands.size() == 2 && spec.operands[0].name == "a" &&
         spec.has_gradient;
}

class Builder : public RandomTokens {
 public:
  explicit Builder(uint64_t seed) : RandomTokens(seed) {}

  void AddSmallSteps() {
    const int64_t rank = OneOf({2, 3, 4, 4, 4, 4, 5});
    Dims dims = {Between(1, 3), Between(1, 6)};
    while (static_cast<int64_t>(dims.size()) < rank) {
      dims.push_back(Between(rank == 5 ? 2 : 3, rank == 5 ? 5 : 9));
    }
    AddInput("x", dims, false);
    const int64_t steps = Between(2, 10);
    for (int64_t i = 0; i < steps; ++i) AddStep();
  }

  void AddFastSteps() {
    max_elements_ = 50'000;
    Dims dims = {Between(1, 2), Between(32, 40)};
    if (Chance(25)) {
      dims.insert(dims.end(), {Between(2, 4), Between(8, 10), Between(8, 10)});
    } else {
      dims.insert(dims.end(), {Between(13, 17), Between(13, 17)});
    }
    AddInput("x", dims, false);
    AddFastConvolution("x");
    const int64_t steps = Between(0, 4);
    for (int64_t i = 0; i < steps; ++i) {
      const std::string x = PickValue();
      if (DimsOf(x).size() >= 4 && DimsOf(x)[1] >= 32 && Chance(60)) {
        AddFastConvolution(x);
      } else {
        AddStep();
      }
    }
  }

  ProgramCase Finish(std::string name) {
    // A program has no input that no step reads.
    if (!IsRead("x")) Append(Operator::kRelu, {"x"}, {});
    if (Chance(30)) AddLoss();
    if (Chance(20)) AddChoice();
    AddOutputs();
    // Those of convolutions that were invalid.
    std::erase_if(program_.parameters, [&](const ProgramParameter& each) {
      return !IsRead(each.name);
    });
    ProgramCase result;
    result.name = std::move(name);
    result.inputs = inputs_;
    result.program = std::make_shared<const Program>(std::move(program_));
    return result;
  }

 private:
  void AddStep() {
    const std::string x = PickValue();
    if (DimsOf(x).size() > 5 || Chance(25)) {
      AddTokenStep(x);
    } else if (DimsOf(x).size() == 2 && Chance(50)) {
      AddLinear(x);
    } else {
      AddAnyStep(x);
    }
    // Removes the parameters of a step that was invalid.
    auto& parameters = program_.parameters;
    while (!parameters.empty() && !IsRead(parameters.back().name)) {
      shapes_.dims.erase(parameters.back().name);
      parameters.pop_back();
    }
  }

  bool IsRead(const std::string& name) const {
    return absl::c_any_of(program_.steps, [&](const ProgramStep& step) {
      return absl::c_linear_search(step.operands, name);
    });
  }

  bool AddAnyStep(const std::string& x) {
    const size_t axes = DimsOf(x).size() - 2;
    const auto functions = OperatorsThat(&IsFunction);
    const auto count = static_cast<int64_t>(functions.size());
    const int64_t drawn = Between(axes == 0 ? 8 : 0, 16 + count);
    if (drawn > 10 && drawn <= 10 + count) {
      const auto& function = *functions[drawn - 11];
      return Append(function.op, {InRange(function.operands[0], x)},
                    SomeAttributes(function));
    }
    switch (drawn <= 10 ? drawn : drawn - count) {
      case 0:
      case 1:
      case 2:
        return AddConvolution(x, axes);
      case 3:
        return AddTransposed(x, axes);
      case 4:
        return AddPool(Operator::kMaxPool, x, axes);
      case 5:
        return AddPool(Operator::kAvgPool, x, axes);
      case 6:
        return Append(Chance(70) ? Operator::kAdaptiveAvgPool
                                 : Operator::kAdaptiveMaxPool,
                      {x}, {{"output_size", Numbers(axes, 1, 4)}});
      case 7:
        return AddUpsample(x, axes);
      case 8:
      case 9:
        return AddNorm(x);
      case 10:
        return AddGroupNorm(x);
      case 11:
      case 12:
        return AddJoin(x);
      case 13:
        return AddConcat(x);
      case 14:
        return Append(Operator::kFlatten, {x}, {});
      case 15:
        return Append(Operator::kNormalize, {x},
                      {{"mean", 0.25}, {"std", std::vector<double>{0.5}}});
      default:
        return Append(
            Operator::kDropout, {x},
            {{"p", 0.25}, {"training", Chance(70)}, {"by_row", Chance(30)}});
    }
  }

  bool AddConvolution(const std::string& x, size_t axes) {
    const int64_t channels = DimsOf(x)[1];
    const int64_t groups = Chance(30) ? channels : 1;
    const int64_t outputs = groups * Between(1, groups == 1 ? 8 : 2);
    Dims weight = {outputs, channels / groups};
    // Kernels of ours compute what is long.
    const bool is_long = axes == 1 && Chance(30);
    for (size_t i = 0; i < axes; ++i) {
      weight.push_back(is_long ? Between(9, 20) : OneOf({1, 2, 3, 3}));
    }
    std::vector<std::string> operands = {x, AddWeight(weight)};
    if (Chance(50)) operands.push_back(AddWeight({outputs}));
    const bool is_computed =
        Chance(15) && Append(Operator::kRead, {operands[1]}, {}) &&
        Append(Operator::kTanh, {std::string(values_.back())}, {});
    if (is_computed) operands[1] = values_.back();
    Attributes attributes = {{"groups", groups}};
    if (Chance(30)) {
      attributes["padding"] = std::string("same");
    } else {
      attributes["padding"] =
          is_long ? Numbers(axes, 4, 10) : Numbers(axes, 0, 2);
      attributes["stride"] = Numbers(axes, 1, 2);
    }
    if (Chance(30)) attributes["dilation"] = Numbers(axes, 1, 2);
    return Append(Operator::kConv, operands, attributes);
  }

  // Adds a convolution for Winograd's algorithm, and now and then what may be
  // computed with it: a batch_norm, an add and an activation.
  void AddFastConvolution(const std::string& x) {
    const int64_t outputs = Chance(40) ? DimsOf(x)[1] : Between(32, 40);
    const size_t axes = DimsOf(x).size() - 2;
    Dims weight = {outputs, DimsOf(x)[1], 3, 3};
    if (axes == 3) weight.insert(weight.begin() + 2, Between(1, 3));
    std::vector<std::string> operands = {x, AddWeight(weight)};
    if (Chance(50)) operands.push_back(AddWeight({outputs}));
    const AttributeValue padding =
        Chance(70) ? AttributeValue(int64_t{1}) : Numbers(axes, 0, 2);
    if (!Append(Operator::kConv, operands, {{"padding", padding}})) return;
    if (Chance(30)) AddNorm(std::string(values_.back()));
    const std::string y = values_.back();
    const auto same = absl::c_find_if(values_, [&](const std::string& value) {
      return value != y && DimsOf(value) == DimsOf(y);
    });
    if (same != values_.end() && Chance(60)) {
      Append(Operator::kAdd, {y, *same}, {});
    }
    if (Chance(50)) {
      Append(Chance(50) ? Operator::kRelu : Operator::kRelu6,
             {std::string(values_.back())}, {});
    }
  }

  bool AddTransposed(const std::string& x, size_t axes) {
    const int64_t channels = DimsOf(x)[1];
    const int64_t outputs = Between(1, 4);
    Dims weight = {channels, outputs};
    for (size_t i = 0; i < axes; ++i) weight.push_back(Between(1, 3));
    std::vector<std::string> operands = {x, AddWeight(weight)};
    if (Chance(50)) operands.push_back(AddWeight({outputs}));
    return Append(Operator::kConvTranspose, operands,
                  {{"stride", int64_t{2}},
                   {"padding", Numbers(axes, 0, 1)},
                   {"output_padding", Numbers(axes, 0, 1)}});
  }

  bool AddPool(Operator op, const std::string& x, size_t axes) {
    Attributes attributes = {{"kernel_size", Numbers(axes, 2, 3)},
                             {"padding", Numbers(axes, 0, 1)},
                             {"ceil_mode", Chance(40)}};
    if (Chance(70)) attributes["stride"] = Numbers(axes, 1, 3);
    if (op == Operator::kMaxPool && Chance(30)) {
      attributes["dilation"] = Numbers(axes, 1, 2);
    }
    if (op == Operator::kAvgPool) {
      attributes["count_include_pad"] = Chance(50);
      if (Chance(20)) attributes["divisor_override"] = int64_t{3};
    }
    return Append(op, {x}, attributes);
  }

  bool AddUpsample(const std::string& x, size_t axes) {
    Attributes attributes;
    if (Chance(60)) {
      attributes["mode"] = std::string(axes == 1    ? "linear"
                                       : axes == 3  ? "trilinear"
                                       : Chance(60) ? "bilinear"
                                                    : "bicubic");
      attributes["align_corners"] = Chance(50);
    }
    if (Chance(50)) {
      attributes["scale_factor"] = Chance(50) ? 2.0 : 1.5;
    } else {
      attributes["size"] = Numbers(axes, 2, 9);
    }
    return Append(Operator::kUpsample, {x}, attributes);
  }

  bool AddNorm(const std::string& x) {
    const Dims channels = {DimsOf(x)[1]};
    const bool is_training = Chance(60);
    std::vector<std::string> operands = {x, "", ""};
    if (Chance(80)) operands[1] = AddParameter(channels, true);
    if (Chance(80)) operands[2] = AddParameter(channels, true);
    if (!is_training || Chance(60)) {
      operands.push_back(AddParameter(channels, false));
      operands.push_back(AddParameter(channels, false));
      operands.push_back(AddParameter({}, false, DataType::kI64));
    }
    Attributes attributes = {{"training", is_training}};
    if (Chance(30)) attributes["momentum"] = std::string("none");
    return Append(Operator::kBatchNorm, operands, attributes);
  }

  bool AddGroupNorm(const std::string& x) {
    const Dims channels = {DimsOf(x)[1]};
    std::vector<std::string> operands = {x, "", ""};
    if (Chance(80)) operands[1] = AddParameter(channels, true);
    if (Chance(80)) operands[2] = AddParameter(channels, true);
    return Append(Operator::kGroupNorm, operands,
                  {{"groups", Between(1, channels[0])}, {"eps", 0.01}});
  }

  // Adds a step of `x` and a constant, another value of these dims, or a value
  // with a number for each channel, or for each image and channel.
  bool AddJoin(const std::string& x) {
    const auto joins = OperatorsThat(&IsJoin);
    const OperatorSpec& join = *joins[Between(0, std::ssize(joins) - 1)];
    const OperandSpec& b = join.operands[1];
    if (b.optional && Chance(25)) {
      return Append(join.op, {x}, {{"other", OneOf({-3, 2}) * 0.75}});
    }
    if (Chance(25)) {
      if (!AddMeans(x)) return false;
      return Append(join.op, {x, InRange(b, values_.back())}, {});
    }
    std::vector<std::string> others;
    for (const std::string& value : values_) {
      // x - x is 0, but its two gradients cancel only up to their rounding.
      const bool takes_itself = !join.has_kink && join.op != Operator::kSub;
      const bool is_other = value != x || takes_itself;
      if (is_other && DimsOf(value) == DimsOf(x)) others.push_back(value);
    }
    if (others.empty()) return false;
    const std::string other = others[Between(0, std::ssize(others) - 1)];
    return Append(join.op, {x, InRange(b, other)}, {});
  }

  // A number for each image and channel of x.
  bool AddMeans(const std::string& x) {
    std::vector<int64_t> axes(DimsOf(x).size() - 2);
    std::iota(axes.begin(), axes.end(), 2);
    const Operator op = Chance(50) ? Operator::kMean : Operator::kSum;
    return !axes.empty() && Append(op, {x}, {{"dim", axes}, {"keepdim", true}});
  }

  bool AddConcat(const std::string& x) {
    std::vector<std::string> operands = {x};
    for (const std::string& value : values_) {
      Dims dims = DimsOf(value);
      dims[1] = DimsOf(x)[1];
      if (dims == DimsOf(x) && Chance(60)) operands.push_back(value);
    }
    if (operands.size() == 1) operands.push_back(x);
    return Append(Operator::kConcat, operands, {});
  }

  void AddLoss() {
    const std::string x = values_.back();
    const Dims dims = DimsOf(x);
    if (x == "x" || dims[1] < 2 || dims.size() > 5) return;
    if (Chance(30)) {
      AddInput("z", dims, false);
      values_.pop_back();
      constexpr Operator kLosses[] = {Operator::kMse, Operator::kL1,
                                      Operator::kSmoothL1,
                                      Operator::kBinaryCrossEntropy};
      Append(kLosses[OneOf({0, 1, 2, 3})], {x, "z"}, {});
    } else {
      const bool is_soft = Chance(40);
      Dims target = dims;
      if (!is_soft) target.erase(target.begin() + 1);
      AddInput("t", target, !is_soft);
      if (is_soft) values_.pop_back();
      Attributes attributes;
      if (Chance(30)) attributes["label_smoothing"] = 0.125;
      if (Chance(30)) attributes["reduction"] = std::string("sum");
      std::vector<std::string> operands = {x, "t"};
      if (Chance(30)) operands.push_back(AddParameter({dims[1]}, false));
      Append(Operator::kCrossEntropy, operands, attributes);
    }
    program_.outputs.push_back(values_.back());
    values_.pop_back();
  }

  // Every value that no step reads.
  void AddOutputs() {
    for (const ProgramStep& step : program_.steps) {
      const bool is_there =
          absl::c_linear_search(program_.outputs, step.result);
      if (IsRead(step.result) || is_there) continue;
      program_.outputs.push_back(step.result);
    }
  }
};

}  // namespace

ProgramCase RandomProgram(uint64_t seed) {
  Builder builder(seed);
  builder.AddSmallSteps();
  return builder.Finish(absl::StrCat("random_", seed));
}

ProgramCase RandomFastProgram(uint64_t seed) {
  Builder builder(seed);
  builder.AddFastSteps();
  return builder.Finish(absl::StrCat("random_fast_", seed));
}

}  // namespace convgrad::testing_support
