// `RandomSteps` draws numbers and appends steps to a program that it makes.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "backends/core/program/program.h"
#include "backends/core/program/program_shapes.h"

namespace convgrad::testing_support {

// Owned by one thread. The same seed gives the same draws.
class RandomSteps {
 protected:
  using Attributes = std::map<std::string, AttributeValue>;

  explicit RandomSteps(uint64_t seed) : random_(seed) {}

  int64_t Between(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random_);
  }
  bool Chance(int percent) { return Between(1, 100) <= percent; }
  int64_t OneOf(const std::vector<int64_t>& choices) {
    return choices[Between(0, std::ssize(choices) - 1)];
  }
  // Returns one number for each axis, or now and then one for all.
  AttributeValue Numbers(size_t axes, int64_t least, int64_t most);
  // Returns numbers and words other than the defaults.
  Attributes SomeAttributes(const OperatorSpec& spec);
  // Returns 0 to `count` - 1 in a random order.
  std::vector<int64_t> Shuffled(size_t count);

  void AddInput(const std::string& name, const Dims& dims, bool is_index);
  // Requires: no step reads the last input, which has indices.
  void RemoveLastInput() {
    program_.inputs.pop_back();
    inputs_.pop_back();
  }
  std::string AddParameter(const Dims& dims, bool trainable,
                           DataType dtype = DataType::kF32);
  // Returns a new parameter, or now and then one that exists: tied weights.
  std::string AddWeight(const Dims& dims);

  const std::string& PickValue() {
    const int64_t last = std::ssize(values_) - 1;
    return values_[Chance(70) ? last : Between(0, last)];
  }
  const Dims& DimsOf(const std::string& name) const {
    return shapes_.dims.at(name);
  }

  // Appends a step if its shapes are right; otherwise leaves all as it was.
  bool Append(Operator op, std::vector<std::string> operands,
              Attributes attributes);
  // Returns `x`, or a value computed from it if the operand accepts only some
  // numbers.
  std::string InRange(const OperandSpec& operand, const std::string& x);
  bool AddLinear(const std::string& x);
  // Appends a choice by a comparison of the input "x". A rounding error could
  // change the result of another comparison by 1.
  void AddChoice();

  Program program_;
  std::vector<Dims> inputs_;
  ProgramShapes shapes_;
  std::vector<std::string> values_;  // that a step may read
  int64_t max_elements_ = 3000;      // of a step's result

 private:
  std::mt19937_64 random_;
};

// `RandomTokens` also draws steps that take values of any rank. Owned by one
// thread.
class RandomTokens : public RandomSteps {
 protected:
  using RandomSteps::RandomSteps;

  // Appends a step that works along any axes, mostly the last ones. Returns
  // false if the drawn step doesn't fit x.
  bool AddTokenStep(const std::string& x);

 private:
  bool AddRowNorm(const std::string& x);
  bool AddPad(const std::string& x);
  bool AddReduction(const std::string& x);
  bool AddRepeated(const std::string& x);
  bool AddProductOf(const std::string& x);
};

}  // namespace convgrad::testing_support
