#include "backends/core/program/program_operation.h"

#include "backends/core/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Returns a network with everything that an operation on it may have.
std::shared_ptr<const Program> Network() {
  return std::make_shared<const Program>(
      *ParseProgram("input x\n"
                    "input t index\n"
                    "parameter w [5, 3]\n"
                    "parameter m [5] fixed\n"
                    "parameter v [5] fixed\n"
                    "parameter n [] i64 fixed\n"
                    "a = linear(x, w)\n"
                    "b = batch_norm(a, none, none, m, v, n, training=true)\n"
                    "c = dropout(b, training=true)\n"
                    "y = cross_entropy(c, t)\n"
                    "output y\n"
                    "output c\n"));
}

ProgramRequest Request(ProgramPart part) {
  ProgramRequest request;
  request.program = Network();
  request.part = part;
  request.inputs = {{DataType::kBF16, Layout::kNCX, {4, 3}},
                    {DataType::kI64, Layout::kNCX, {4}}};
  if (part == ProgramPart::kBackward) request.output_gradients = {"y", "c"};
  request.input_gradients = {true, false};
  request.tape_bytes = 128;
  return request;
}

std::vector<std::string> Texts(const TensorUses& uses) {
  std::vector<std::string> texts;
  for (const TensorUse& use : uses) texts.push_back(ToString(*use.tensor));
  return texts;
}

// Returns the error of `request`.
absl::Status ErrorOf(const ProgramRequest& request) {
  return ProgramOperation::Make(request).status();
}

TEST(ProgramOperationTest, ForwardTakesInputsParametersAndRandomness) {
  const auto operation =
      *ProgramOperation::Make(Request(ProgramPart::kForwardTape));
  EXPECT_THAT(
      Texts(operation->OperandUses()),
      ElementsAre("bf16:NCX[4,3]", "i64:NCX[4]", "f32:NCX[5,3]", "f32:NCX[5]",
                  "f32:NCX[5]", "i64:NCX[]", "i64:NCX[2]"));
  EXPECT_THAT(Texts(operation->ResultUses()),
              ElementsAre("f32:NCX[]", "f32:NCX[4,5]", "f32:NCX[5]",
                          "f32:NCX[5]", "i64:NCX[]", "u8:NCX[128]"));
  // Three operators on elements follow the linear.
  EXPECT_EQ(operation->flops(), 2 * (4 * 5 * 3 + 3 * 4 * 5));
}

TEST(ProgramOperationTest, BackwardTakesTapeAndGradientsAndGivesGradients) {
  const auto operation =
      *ProgramOperation::Make(Request(ProgramPart::kBackward));
  EXPECT_THAT(
      Texts(operation->OperandUses()),
      ElementsAre("u8:NCX[128]", "f32:NCX[]", "f32:NCX[4,5]", "f32:NCX[5,3]",
                  "f32:NCX[5]", "f32:NCX[5]", "i64:NCX[]"));
  EXPECT_THAT(Texts(operation->ResultUses()),
              ElementsAre("f32:NCX[4,3]", "f32:NCX[5,3]"));
}

TEST(ProgramOperationTest, TrainGivesValuesStatisticsAndGradients) {
  ProgramRequest request = Request(ProgramPart::kTrain);
  request.fetched = {"y"};
  const auto operation = *ProgramOperation::Make(request);
  EXPECT_THAT(Texts(operation->ResultUses()),
              ElementsAre("f32:NCX[]", "f32:NCX[5]", "f32:NCX[5]", "i64:NCX[]",
                          "f32:NCX[4,3]", "f32:NCX[5,3]"));
}

TEST(ProgramOperationTest, TextsTellOperationsApartButForTheTape) {
  ProgramRequest request = Request(ProgramPart::kBackward);
  const std::string text = ProgramOperation::Make(request).value()->text();
  request.tape_bytes = 64;
  EXPECT_EQ(ProgramOperation::Make(request).value()->text(), text);
  request.parameter_gradients = false;
  EXPECT_NE(ProgramOperation::Make(request).value()->text(), text);
}

TEST(ProgramOperationTest, RefusesInputsThatDoNotFit) {
  ProgramRequest request = Request(ProgramPart::kForward);
  request.inputs[1].dtype = DataType::kF32;
  EXPECT_EQ(DetailOf(ErrorOf(request))->field, "inputs.t.dtype");
  request = Request(ProgramPart::kForward);
  request.inputs[0].layout = Layout::kNDC1HWC0;
  EXPECT_EQ(DetailOf(ErrorOf(request))->field, "inputs.x.layout");
  request = Request(ProgramPart::kForward);
  request.inputs[0].dims = {4, 2};
  EXPECT_THAT(ErrorOf(request).message(), HasSubstr("steps[0] (a).weight"));
  request.inputs.pop_back();
  EXPECT_EQ(DetailOf(ErrorOf(request))->field, "inputs");
}

TEST(ProgramOperationTest, RefusesNamesThatAreNotThereOrComeTwice) {
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{"z"}, {"x"}, {"w"}, {"y", "y"}}) {
    ProgramRequest request = Request(ProgramPart::kForward);
    request.fetched = names;
    EXPECT_EQ(DetailOf(ErrorOf(request))->field, "fetched");
    request = Request(ProgramPart::kBackward);
    request.output_gradients = names;
    EXPECT_EQ(DetailOf(ErrorOf(request))->field, "output_gradients");
  }
}

TEST(ProgramOperationTest, RefusesWhatHasNoGradient) {
  ProgramRequest request = Request(ProgramPart::kBackward);
  request.output_gradients.clear();
  EXPECT_EQ(DetailOf(ErrorOf(request))->field, "output_gradients");
  request = Request(ProgramPart::kBackward);
  request.input_gradients = {true, true};
  EXPECT_EQ(DetailOf(ErrorOf(request))->field, "input_gradients");
  Program program = *Network();
  std::swap(program.outputs[0], program.outputs[1]);
  request = Request(ProgramPart::kTrain);
  request.program = std::make_shared<const Program>(program);
  EXPECT_EQ(DetailOf(ErrorOf(request))->field, "backward");
}

TEST(ProgramOperationTest, ComputesInF32AndBf16Alone) {
  ProgramRequest request = Request(ProgramPart::kForward);
  request.compute_dtype = DataType::kF16;
  EXPECT_EQ(ErrorOf(request).code(), absl::StatusCode::kUnimplemented);
  request.compute_dtype = DataType::kU8;
  EXPECT_EQ(ErrorOf(request).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace convgrad
