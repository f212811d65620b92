#include <algorithm>
#include <numeric>
#include <utility>
#include <variant>
#include <vector>

#include "tests/conformance/programs/random_steps.h"

namespace convgrad::testing_support {

bool RandomTokens::AddTokenStep(const std::string& x) {
  const Dims dims = DimsOf(x);
  const auto rank = static_cast<int64_t>(dims.size());
  const int64_t axis = Between(0, rank - 1);
  switch (Between(0, 14)) {
    case 0:
      return AddLinear(x);
    case 1:
      return AddRowNorm(x);
    case 2:
      return Append(Chance(50) ? Operator::kSoftmax : Operator::kLogSoftmax,
                    {x}, {{"axis", axis - (Chance(50) ? rank : 0)}});
    case 3:
      return Append(Operator::kPermute, {x}, {{"dims", Shuffled(dims.size())}});
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
    case 9:
      return AddPad(x);
    case 11:
    case 12:
      return AddReduction(x);
    case 13: {
      std::vector<int64_t> shape(dims.begin(), dims.end());
      shape.insert(shape.begin() + axis, 1);
      if (!Append(Operator::kReshape, {x}, {{"shape", shape}})) return false;
      std::fill(shape.begin(), shape.end(), -1);
      shape[axis] = Between(2, 3);
      Append(Operator::kExpand, {std::string(values_.back()), ""},
             {{"shape", shape}});
      return true;
    }
    case 10: {
      const Dims places = Chance(50) ? Dims{3} : Dims{2, 2};
      const bool is_input = Chance(50);
      std::string index = absl::StrCat("i", inputs_.size());
      if (is_input) {
        AddInput(index, places, true);
      } else {
        index = AddParameter(places, false, DataType::kI64);
      }
      if (Append(Operator::kIndexSelect, {x, index}, {{"axis", axis}})) {
        return true;
      }
      if (is_input) RemoveLastInput();
      return false;
    }
    default:
      return AddProductOf(x);
  }
}

bool RandomTokens::AddRowNorm(const std::string& x) {
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

bool RandomTokens::AddPad(const std::string& x) {
  std::vector<int64_t> pads;
  const int64_t axes = Between(1, std::ssize(DimsOf(x)) - 1);
  for (int64_t i = 0; i < 2 * axes; ++i) pads.push_back(Between(0, 2));
  Attributes attributes = SomeAttributes(SpecOf(Operator::kPad));
  attributes["pads"] = pads;
  if (std::get<std::string>(attributes["mode"]) == "constant") {
    attributes["value"] = 0.75;
  } else {
    attributes.erase("value");
  }
  return Append(Operator::kPad, {x}, attributes);
}

bool RandomTokens::AddReduction(const std::string& x) {
  const Dims dims = DimsOf(x);
  std::vector<int64_t> axes = Shuffled(dims.size());
  axes.resize(Between(1, std::ssize(axes) - 1));
  int64_t length = 1;
  for (int64_t& axis : axes) {
    length *= dims[axis];
    if (Chance(30)) axis -= std::ssize(dims);
  }
  Attributes attributes = {{"dim", axes}, {"keepdim", Chance(50)}};
  const Operator ops[] = {Operator::kMean, Operator::kSum, Operator::kAmax,
                          Operator::kNorm, Operator::kVar};
  const Operator op = ops[Between(0, 4)];
  // With one element, a var is 0 / 0, and a norm has a kink.
  if (length == 1 && (op == Operator::kNorm || op == Operator::kVar)) {
    return false;
  }
  if (op == Operator::kVar && Chance(50)) {
    attributes["correction"] = int64_t{0};
  }
  return Append(op, {x}, attributes);
}

// x plus or times a parameter that is repeated along some axes, or along all.
bool RandomTokens::AddRepeated(const std::string& x) {
  Dims dims = DimsOf(x);
  if (dims.size() > 5) return false;  // no parameter has such a rank
  for (int64_t& extent : dims) {
    if (Chance(50)) extent = 1;
  }
  Attributes attributes;
  if (Chance(25)) {
    attributes["shape"] = std::vector<int64_t>(dims.size(), 1);
    dims.clear();
  }
  return Append(Operator::kRead, {AddParameter(dims, true)}, attributes) &&
         Append(Chance(50) ? Operator::kAdd : Operator::kMul,
                {x, std::string(values_.back())}, {});
}

// x times its transpose, or the attention of x to itself.
bool RandomTokens::AddProductOf(const std::string& x) {
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

}  // namespace convgrad::testing_support
