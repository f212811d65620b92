#include "tests/conformance/programs/random_program.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "backends/core/program/program_shapes.h"
#include "backends/reference/program_step_data.h"

namespace convgrad::testing_support {
namespace {

constexpr int64_t kMaxElements = 3000;

std::vector<const OperatorSpec*> OperatorsThat(
    bool (*fit)(const OperatorSpec& spec)) {
  std::vector<const OperatorSpec*> specs;
  for (const OperatorSpec& spec : Operators()) {
    if (fit(spec)) specs.push_back(&spec);
  }
  return specs;
}

// Returns whether an operator computes each element of one value by itself.
bool IsFunction(const OperatorSpec& spec) {
  return spec.infer == nullptr && spec.operands.size() == 1 && !spec.is_random;
}

// Returns whether an operator takes two values of one shape.
bool IsJoin(const OperatorSpec& spec) {
  return spec.operands.size() == 2 && spec.operands[0].name == "a";
}

class Builder {
 public:
  explicit Builder(uint64_t seed) : random_(seed) {
    const int64_t rank = OneOf({2, 3, 4, 4, 4, 4, 5});
    Dims dims = {Between(1, 3), Between(1, 6)};
    while (static_cast<int64_t>(dims.size()) < rank) {
      dims.push_back(Between(rank == 5 ? 2 : 3, rank == 5 ? 5 : 9));
    }
    AddInput("x", dims, false);
    const int64_t steps = Between(2, 10);
    for (int64_t i = 0; i < steps; ++i) AddStep();
    // A program has one step at least.
    if (program_.steps.empty()) Append(Operator::kRelu, {"x"}, {});
    if (Chance(30)) AddLoss();
    AddOutputs();
  }

  ProgramCase Finish(uint64_t seed) {
    ProgramCase result;
    result.name = absl::StrCat("random_", seed);
    result.inputs = inputs_;
    result.program = std::make_shared<const Program>(std::move(program_));
    return result;
  }

 private:
  using Attributes = std::map<std::string, AttributeValue>;

  int64_t Between(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random_);
  }
  bool Chance(int percent) { return Between(1, 100) <= percent; }
  int64_t OneOf(std::vector<int64_t> choices) {
    return choices[Between(0, static_cast<int64_t>(choices.size()) - 1)];
  }
  // Returns one number for each axis, or sometimes one for all.
  AttributeValue Numbers(size_t axes, int64_t least, int64_t most) {
    if (Chance(40)) return Between(least, most);
    std::vector<int64_t> numbers;
    for (size_t i = 0; i < axes; ++i) numbers.push_back(Between(least, most));
    return numbers;
  }

  void AddInput(const std::string& name, const Dims& dims, bool is_index) {
    program_.inputs.push_back({name, is_index});
    inputs_.push_back(dims);
    shapes_.dims[name] = dims;
    if (!is_index) values_.push_back(name);
  }

  std::string AddParameter(const Dims& dims, bool trainable,
                           DataType dtype = DataType::kF32) {
    const std::string name = absl::StrCat("p", program_.parameters.size());
    program_.parameters.push_back({name, dims, dtype, trainable});
    shapes_.dims[name] = dims;
    return name;
  }
  // Sometimes returns an existing weight: tied weights.
  std::string AddWeight(const Dims& dims) {
    for (const ProgramParameter& parameter : program_.parameters) {
      if (parameter.dims == dims && parameter.trainable && Chance(50)) {
        return parameter.name;
      }
    }
    return AddParameter(dims, !Chance(10));
  }

  const std::string& PickValue() {
    const auto last = static_cast<int64_t>(values_.size()) - 1;
    return values_[Chance(70) ? last : Between(0, last)];
  }
  const Dims& DimsOf(const std::string& name) { return shapes_.dims.at(name); }

  // Appends a step if its shapes are valid; otherwise changes nothing.
  bool Append(Operator op, std::vector<std::string> operands,
              Attributes attributes) {
    Program trial = program_;
    const std::string name = absl::StrCat("v", program_.steps.size());
    trial.steps.push_back(
        {name, op, std::move(operands), std::move(attributes)});
    auto shapes = InferShapes(trial, inputs_);
    if (!shapes.ok() || CountOf(shapes->dims.at(name)) > kMaxElements) {
      return false;
    }
    program_ = std::move(trial);
    shapes_ = *std::move(shapes);
    values_.push_back(name);
    return true;
  }

  void AddStep() {
    const size_t parameters = program_.parameters.size();
    const std::string x = PickValue();
    const bool is_added = DimsOf(x).size() > 5 || Chance(25) ? AddTokenStep(x)
                          : DimsOf(x).size() == 2 && Chance(50) ? AddLinear(x)
                                                                : AddAnyStep(x);
    if (is_added) return;
    // Removes the parameters of the step that didn't fit.
    for (size_t i = parameters; i < program_.parameters.size(); ++i) {
      shapes_.dims.erase(program_.parameters[i].name);
    }
    program_.parameters.resize(parameters);
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
        return Append(Operator::kAdaptiveAvgPool, {x},
                      {{"output_size", Numbers(axes, 1, 4)}});
      case 7:
        return AddUpsample(x, axes);
      case 8:
      case 9:
      case 10:
        return AddNorm(x);
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

  // Adds a step that takes values of any rank and works along the last axes.
  bool AddTokenStep(const std::string& x) {
    const Dims dims = DimsOf(x);
    const auto rank = static_cast<int64_t>(dims.size());
    const int64_t axis = Between(0, rank - 1);
    switch (Between(0, 10)) {
      case 0:
        return AddLinear(x);
      case 1:
        return AddRowNorm(x);
      case 2:
        return Append(Chance(50) ? Operator::kSoftmax : Operator::kLogSoftmax,
                      {x}, {{"axis", axis - (Chance(50) ? rank : 0)}});
      case 3: {
        std::vector<int64_t> order(dims.size());
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), random_);
        return Append(Operator::kPermute, {x}, {{"dims", order}});
      }
      case 4: {
        std::vector<int64_t> shape(dims.begin(), dims.end());
        shape.insert(shape.begin() + axis, 1);
        if (Chance(50)) shape = {-1, dims.back()};
        return Append(Operator::kReshape, {x}, {{"shape", shape}});
      }
      case 5:
        return Append(Operator::kSlice, {x},
                      {{"axis", axis},
                       {"start", Between(0, dims[axis] - 1)},
                       {"end", dims[axis]},
                       {"step", Between(1, 2)}});
      case 6:
        return Append(Operator::kSelect, {x},
                      {{"axis", axis}, {"index", Between(0, dims[axis] - 1)}});
      case 7:
        return Append(Operator::kConcat, {x, x}, {{"axis", axis}});
      case 8:
        return AddRepeated(x);
      case 9: {
        std::vector<int64_t> shape;
        for (const int64_t extent : dims) {
          shape.push_back(extent == 1 ? Between(1, 3) : -1);
        }
        return Append(Operator::kExpand, {x}, {{"shape", shape}});
      }
      default:
        return AddProductOf(x);
    }
  }

  bool AddRowNorm(const std::string& x) {
    const Dims dims = DimsOf(x);
    const int64_t axes = Between(1, 2);
    const Dims normalized(dims.end() - axes, dims.end());
    std::vector<std::string> operands = {x};
    if (Chance(80)) operands.push_back(AddParameter(normalized, !Chance(10)));
    const bool is_centred = Chance(70);
    if (is_centred && operands.size() == 2) {
      operands.push_back(AddParameter(normalized, true));
    }
    return Append(is_centred ? Operator::kLayerNorm : Operator::kRmsNorm,
                  operands, {{"axes", axes}, {"eps", 0.01}});
  }

  // Adds x plus or times a parameter that is repeated along some axes.
  // Parameters have rank 5 at most.
  bool AddRepeated(const std::string& x) {
    Dims dims = DimsOf(x);
    if (dims.size() > 5) dims.erase(dims.begin());
    for (int64_t& extent : dims) {
      if (Chance(50)) extent = 1;
    }
    const size_t steps = program_.steps.size();
    if (!Append(Operator::kRead, {AddParameter(dims, true)}, {}) ||
        !Append(Chance(50) ? Operator::kAdd : Operator::kMul,
                {x, std::string(values_.back())}, {})) {
      return program_.steps.size() > steps;
    }
    return true;
  }

  // Adds x times its transpose, or the attention of x to itself.
  bool AddProductOf(const std::string& x) {
    if (Chance(50)) {
      return Append(Operator::kAttention, {x, x, x}, {{"causal", Chance(50)}});
    }
    std::vector<int64_t> order(DimsOf(x).size());
    std::iota(order.begin(), order.end(), 0);
    std::swap(order[order.size() - 1], order[order.size() - 2]);
    return Append(Operator::kPermute, {x}, {{"dims", order}}) &&
           (Append(Operator::kMatmul, {x, std::string(values_.back())}, {}) ||
            true);
  }

  // Returns numbers and words that differ from the defaults.
  Attributes SomeAttributes(const OperatorSpec& spec) {
    Attributes attributes;
    for (const AttributeSpec& attribute : spec.attributes) {
      const std::string name(attribute.name);
      if (attribute.kind == AttributeKind::kWord) {
        const std::vector<std::string> words =
            absl::StrSplit(attribute.words, '|');
        attributes[name] = words[Between(0, std::ssize(words) - 1)];
      } else if (attribute.kind == AttributeKind::kFloat) {
        double number = attributes.empty() ? -0.5 : 0.75;
        if (absl::SimpleAtod(attribute.default_text, &number)) number *= 0.75;
        attributes[name] = number;
      }
    }
    return attributes;
  }

  // Returns `x`, or a function of it, for an operand that doesn't accept every
  // number.
  std::string InRange(const OperandSpec& operand, const std::string& x) {
    switch (operand.range) {
      case OperandRange::kWithinOne:
        return Append(Operator::kTanh, {x}, {}) ? values_.back() : x;
      case OperandRange::kPositive:
        Append(Operator::kAbs, {x}, {});
        Append(Operator::kAdd, {std::string(values_.back())}, {{"other", 0.5}});
        return values_.back();
      default:
        return x;
    }
  }

  bool AddLinear(const std::string& x) {
    const int64_t columns = Between(1, 8);
    std::vector<std::string> operands = {
        x, AddWeight({columns, DimsOf(x).back()})};
    if (Chance(50)) operands.push_back(AddWeight({columns}));
    return Append(Operator::kLinear, operands, {});
  }

  bool AddConvolution(const std::string& x, size_t axes) {
    const int64_t channels = DimsOf(x)[1];
    const int64_t groups = Chance(30) ? channels : 1;
    const int64_t outputs = groups * Between(1, groups == 1 ? 8 : 2);
    Dims weight = {outputs, channels / groups};
    for (size_t i = 0; i < axes; ++i) weight.push_back(OneOf({1, 2, 3, 3}));
    std::vector<std::string> operands = {x, AddWeight(weight)};
    if (Chance(50)) operands.push_back(AddWeight({outputs}));
    Attributes attributes = {{"groups", groups}};
    if (Chance(30)) {
      attributes["padding"] = std::string("same");
    } else {
      attributes["padding"] = Numbers(axes, 0, 2);
      attributes["stride"] = Numbers(axes, 1, 2);
    }
    if (Chance(30)) attributes["dilation"] = Numbers(axes, 1, 2);
    return Append(Operator::kConv, operands, attributes);
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
    if (axes == 2 && Chance(60)) {
      attributes["mode"] = std::string("bilinear");
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

  // Joins x with a constant, another value of these dims, or a value with a
  // number for each channel, or for each image and channel.
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

  // Adds a number for each image and channel of x.
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
      Append(Operator::kMse, {x, "z"}, {});
    } else {
      Dims target = dims;
      target.erase(target.begin() + 1);
      AddInput("t", target, true);
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

  // Adds every value that no step reads as an output.
  void AddOutputs() {
    for (const ProgramStep& step : program_.steps) {
      const bool is_read = std::any_of(
          program_.steps.begin(), program_.steps.end(),
          [&](const ProgramStep& other) {
            return absl::c_linear_search(other.operands, step.result);
          });
      const bool is_there =
          absl::c_linear_search(program_.outputs, step.result);
      if (!is_read && !is_there) program_.outputs.push_back(step.result);
    }
  }

  std::mt19937_64 random_;
  Program program_;
  std::vector<Dims> inputs_;
  ProgramShapes shapes_;
  std::vector<std::string> values_;  // Values that a step may read.
};

}  // namespace

ProgramCase RandomProgram(uint64_t seed) { return Builder(seed).Finish(seed); }

}  // namespace convgrad::testing_support
