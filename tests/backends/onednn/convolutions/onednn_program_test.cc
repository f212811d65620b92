// Which steps of a program run, and where they find their bytes.
#include "backends/onednn/convolutions/onednn_program.h"

#include <vector>

#include "gtest/gtest.h"

namespace convgrad::onednn {
namespace {

constexpr auto kWeight = static_cast<int>(Operand::kWeight);

class OnednnProgram : public testing::Test {
 protected:
  // Has the program write `value` to `location`.
  void AddWrite(int value, const Location& location,
                const Location& purpose = {}) {
    program_.Add(
        {},
        [=](const StepContext& at) {
          *static_cast<int*>(at.Write(location)) = value;
        },
        purpose);
  }

  void Run() {
    scratch_.assign(program_.scratch_bytes(), std::byte{0});
    buffers_.scratch = absl::MakeSpan(scratch_);
    const auto times = program_.Run(buffers_);
    EXPECT_TRUE(times.ok()) << times.status();
  }
  int At(const Location& location) {
    return *static_cast<const int*>(
        StepContext(program_, buffers_).Read(location));
  }

  Program program_{1};
  RunBuffers buffers_{kOperandCount};
  std::vector<std::byte> scratch_;
};

TEST_F(OnednnProgram, PlacesDontOverlap) {
  const Location first = program_.Allocate(1);
  const Location prepared = program_.AllocatePreparedWeight(1);
  const Location second = program_.Allocate(1);
  AddWrite(1, first);
  AddWrite(2, prepared, prepared);
  AddWrite(3, second);
  Run();
  EXPECT_EQ(At(first), 1);
  EXPECT_EQ(At(prepared), 2);
  EXPECT_EQ(At(second), 3);
}

TEST_F(OnednnProgram, LeavesOutWhatAPreparedWeightIsMadeBy) {
  const Location on_the_way = program_.Allocate(64);
  const Location prepared = program_.AllocatePreparedWeight(64);
  const Location other = program_.Allocate(64);
  AddWrite(1, on_the_way, prepared);
  AddWrite(2, prepared, prepared);
  AddWrite(3, other);
  int brought[16] = {7};
  buffers_.prepared_weight =
      absl::MakeSpan(reinterpret_cast<std::byte*>(brought), sizeof(brought));
  buffers_.weight_is_prepared = true;
  Run();
  EXPECT_EQ(At(on_the_way), 0);
  EXPECT_EQ(At(prepared), 7);
  EXPECT_EQ(At(other), 3);
  buffers_.weight_is_prepared = false;
  Run();
  EXPECT_EQ(At(on_the_way), 1);
  EXPECT_EQ(brought[0], 2);
}

TEST_F(OnednnProgram, GathersOnlyWhatOneStepReads) {
  const PhysicalLayout layout =
      PhysicalLayoutOf({DataType::kF32, Layout::kNCX, {1, 2, 2}});
  auto gather =
      ScatteredReorder::Make(layout, DataType::kF32, layout, DataType::kF32);
  ASSERT_TRUE(gather);
  const auto operand = static_cast<size_t>(Operand::kInput);
  const Location copy =
      program_.AllocateGathered(Operand::kInput, *std::move(gather));
  EXPECT_TRUE(program_.HasGather(Operand::kInput));
  const Location input = {Location::Area::kOperand, static_cast<int>(operand)};
  program_.Add(
      {input}, [](const StepContext&) { FAIL(); }, copy);
  EXPECT_NE(program_.gather(operand), nullptr);
  EXPECT_EQ(program_.gather(kWeight), nullptr);
  int brought = 5;
  buffers_.operands[operand] = &brought;
  buffers_.is_gathered[operand] = true;
  Run();
  EXPECT_EQ(At(copy), 5);
  program_.Add({input}, [](const StepContext&) {});
  EXPECT_EQ(program_.gather(operand), nullptr);
}

}  // namespace
}  // namespace convgrad::onednn
