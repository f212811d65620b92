// Tests which values of a network are images, turned images or rows.
#include "backends/onednn/networks/schedule/network_forms.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace convgrad::onednn {
namespace {

// Returns the forms of a program of x, (2, 24, 5, 4), whose last step is y.
std::map<std::string, Form> FormsOfSteps(const std::string& steps) {
  std::string text = "input x\n";
  for (const auto& [use, declaration] : {std::pair{", g)", "g [24]"},
                                         {", w)", "w [24, 24]"},
                                         {", k)", "k [24, 24, 1, 1]"}}) {
    const bool is_used = steps.find(use) != std::string::npos;
    if (is_used) absl::StrAppend(&text, "parameter ", declaration, "\n");
  }
  const auto program = ParseProgram(absl::StrCat(text, steps, "\noutput y\n"));
  EXPECT_TRUE(program.ok()) << program.status();
  const auto shapes = InferShapes(*program, {{2, 24, 5, 4}});
  EXPECT_TRUE(shapes.ok()) << shapes.status();
  return FormsOf(*program, *shapes);
}

constexpr char kToLast[] = "b = permute(a, dims=[0, 2, 3, 1])\n";
constexpr char kToSecond[] = "y = permute(c, dims=[0, 3, 1, 2])";

TEST(NetworkFormsTest, NormOverChannelsStaysInTheImage) {
  const auto forms = FormsOfSteps(absl::StrCat(
      "a = relu(x)\n", kToLast, "c = layer_norm(b, g)\n", kToSecond));
  EXPECT_EQ(forms.at("a"), Form::kImage);
  EXPECT_EQ(forms.at("b"), Form::kTurnedImage);
  EXPECT_EQ(forms.at("c"), Form::kTurnedImage);
  EXPECT_EQ(forms.at("y"), Form::kImage);
}

TEST(NetworkFormsTest, NormBeforeALinearLayerWritesRows) {
  const auto forms = FormsOfSteps(
      absl::StrCat("a = relu(x)\n", kToLast,
                   "n = layer_norm(b, g)\nc = linear(n, w)\n", kToSecond));
  EXPECT_EQ(forms.at("b"), Form::kTurnedImage);
  EXPECT_EQ(forms.at("n"), Form::kRows);
  EXPECT_EQ(forms.at("c"), Form::kRows);
  EXPECT_EQ(forms.at("y"), Form::kImage);
}

TEST(NetworkFormsTest, ElementsFollowATurnedImage) {
  const auto forms = FormsOfSteps(
      absl::StrCat("a = conv(x, k)\n", kToLast, "n = gelu(b)\nc = mul(n, b)\n",
                   "d = dropout(c)\ny = layer_norm(d, axes=2)"));
  EXPECT_EQ(forms.at("n"), Form::kTurnedImage);
  EXPECT_EQ(forms.at("c"), Form::kTurnedImage);
  EXPECT_EQ(forms.at("d"), Form::kRows);
}

TEST(NetworkFormsTest, OtherPermutesMakeRows) {
  const auto forms = FormsOfSteps(
      "a = relu(x)\nb = permute(a, dims=[0, 1, 3, 2])\n"
      "c = reshape(a, shape=[2, 24, 20])\nd = permute(c, dims=[0, 2, 1])\n"
      "e = matmul(c, d)\nf = sum(b, dim=1, keepdim=true)\n"
      "h = sum(a, dim=3, keepdim=true)\ni = flatten(e)\nj = flatten(f)\n"
      "l = flatten(h)\ny = concat(i, j, l)");
  for (const char* name : {"b", "c", "d", "e", "f", "y"}) {
    EXPECT_EQ(forms.at(name), Form::kRows) << name;
  }
  EXPECT_EQ(forms.at("h"), Form::kImage);
}

TEST(NetworkFormsTest, PadsOfChannelsAreOfRows) {
  const auto forms = FormsOfSteps(
      "a = pad(x, pads=[1, 1, 1, 1])\nb = relu(a)\n"
      "y = pad(b, pads=[0, 0, 0, 0, 1, 1])");
  EXPECT_EQ(forms.at("a"), Form::kImage);
  EXPECT_EQ(forms.at("y"), Form::kRows);
}

}  // namespace
}  // namespace convgrad::onednn
