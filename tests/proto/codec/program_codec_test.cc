#include "proto/codec/program_codec.h"

#include <random>

#include "backends/core/program/program_shapes.h"
#include "tests/conformance/programs/random_program.h"
#include "tests/proto/status_matchers.h"

namespace convgrad {
namespace {

constexpr char kText[] =
    "input x\n"
    "input t index\n"
    "parameter w [4, 3, 3, 3]\n"
    "parameter m [4] fixed\n"
    "parameter v [4] fixed\n"
    "parameter n [] i64 fixed\n"
    "a = conv(x, w, none, padding=same, stride=[1, 1])\n"
    "b = batch_norm(a, none, none, m, v, n, eps=0.001, training=true)\n"
    "c = normalize(b, mean=[0.5, 1.0, 2.0, 3.0], std=[1, 2, 3, 4])\n"
    "d = max_pool(c, kernel_size=2)\n"
    "e = flatten(d)\n"
    "y = cross_entropy(e, t)\n"
    "output y\n";

v1::Program Message() { return EncodeProgram(*ParseProgram(kText)); }

TEST(ProgramCodecTest, DecodesWhatItEncodes) {
  const auto program = DecodeProgram(Message());
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(ToString(*program), kText);
}

TEST(ProgramCodecTest, RandomProgramsCrossTheWire) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    const Program program = *testing_support::RandomProgram(seed).program;
    v1::Program received;
    ASSERT_TRUE(
        received.ParseFromString(EncodeProgram(program).SerializeAsString()));
    const auto decoded = DecodeProgram(received);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(*decoded, program) << ToString(program);
  }
}

// Shapes of an accepted program can be computed, whatever its numbers are.
TEST(ProgramCodecTest, MutatedBytesAreRefusedOrMeanAProgram) {
  std::mt19937_64 random(1);
  int accepted = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    const auto given = testing_support::RandomProgram(seed % 100 + 1);
    std::string bytes = EncodeProgram(*given.program).SerializeAsString();
    // Flips one bit, except those that give no character.
    bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 7);
    v1::Program received;
    if (!received.ParseFromString(bytes)) continue;
    const auto program = DecodeProgram(received);
    if (!program.ok()) {
      EXPECT_TRUE(DetailOf(program.status())) << program.status();
      continue;
    }
    ++accepted;
    EXPECT_EQ(*ParseProgram(ToString(*program)), *program);
    (void)InferShapes(*program, given.inputs);
  }
  EXPECT_GT(accepted, 10);
}

TEST(ProgramCodecTest, ErrorsNameTheFieldFromTheProgramOn) {
  v1::Program message = Message();
  message.mutable_steps(3)->set_operands(0, "missing");
  ExpectInvalid(DecodeProgram(message).status(), Reason::kNotFound,
                "program.steps[3] (d).x");
}

TEST(ProgramCodecTest, RefusesOperatorsByName) {
  v1::Program message = Message();
  message.mutable_steps(3)->set_operator_("rely");
  ExpectError(DecodeProgram(message).status(), absl::StatusCode::kUnimplemented,
              Reason::kUnsupported, "program.steps[3].operator");
}

TEST(ProgramCodecTest, RefusesAttributesWithoutAValueOrTwice) {
  v1::Program message = Message();
  v1::Program::Attribute* added = message.mutable_steps(3)->add_attributes();
  added->set_name("stride");
  ExpectInvalid(DecodeProgram(message).status(), Reason::kMissing,
                "program.steps[3].attributes[1].value");
  added->set_name("kernel_size");
  added->set_integer(2);
  ExpectInvalid(DecodeProgram(message).status(), Reason::kDuplicate,
                "program.steps[3].attributes[1].name");
}

TEST(ProgramCodecTest, RefusesAnUnknownDtype) {
  v1::Program message = Message();
  message.mutable_parameters(0)->set_dtype(static_cast<v1::DataType>(77));
  ExpectInvalid(DecodeProgram(message).status(), Reason::kInvalidEnum,
                "program.parameters[0].dtype");
}

TEST(ProgramCodecTest, RefusesTooManySteps) {
  v1::Program message = Message();
  while (message.steps_size() <= 10'000) message.add_steps();
  ExpectInvalid(DecodeProgram(message).status(), Reason::kLimitExceeded,
                "program.steps");
}

TEST(ProgramCodecTest, RefusesCriticalFieldsThatItDoesNotKnow) {
  v1::Program message = Message();
  v1::Program::Step* step = message.mutable_steps(2);
  step->GetReflection()->MutableUnknownFields(step)->AddVarint(42, 1);
  EXPECT_EQ(DecodeProgram(message).status().code(),
            absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace convgrad
