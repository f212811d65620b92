#include "backends/kernels/copies/scattered_reorder.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "backends/kernels/copies/element_convert.h"
#include "backends/kernels/copies/reorder.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

using Bytes = std::vector<std::byte>;

constexpr DataType kTypes[] = {DataType::kF32, DataType::kBF16, DataType::kF16};

struct Form {
  PhysicalLayout layout;
  int64_t elements;  // pads included
};

std::vector<Form> FormsOf(const Dims& dims) {
  std::vector<Form> forms;
  for (TensorDescriptor tensor :
       {TensorDescriptor{DataType::kF32, Layout::kNCX, dims},
        TensorDescriptor{DataType::kF32, Layout::kNXC, dims},
        TensorDescriptor{.dtype = DataType::kF32,
        .layout = Layout::kNDC1HWC0,
        .dims = dims,
        .c0 = 16}}) {
    forms.push_back({PhysicalLayoutOf(tensor), *ByteSize(tensor) / 4});
  }
  for (int64_t block : {8, 16}) {
    Dims padded = dims;
    padded[1] = (dims[1] + block - 1) / block * block;
    forms.push_back(
        {ChannelBlocked(dims, block), ElementCount({.dims = padded})});
  }
  return forms;
}

// Returns small integers, which are exact in every type.
Bytes RandomBytes(int64_t elements, DataType dtype, std::mt19937* random) {
  Bytes bytes(elements * ByteSizeOf(dtype));
  for (int64_t i = 0; i < elements; ++i) {
    StoreRounded(dtype, static_cast<double>((*random)() % 256),
                 bytes.data() + i * ByteSizeOf(dtype));
  }
  return bytes;
}

// Reorders every layout to every other, with the parts in any order. Returns
// the number of supported pairs.
int CheckAllPairs(const Dims& dims) {
  std::mt19937 random(7);
  int possible = 0;
  for (const Form& from : FormsOf(dims)) {
    for (const Form& to : FormsOf(dims)) {
      const DataType from_dtype = kTypes[random() % 3];
      const DataType to_dtype = kTypes[random() % 3];
      const auto gather =
          ScatteredReorder::Make(from.layout, from_dtype, to.layout, to_dtype);
      if (!gather) continue;
      ++possible;
      const Bytes source = RandomBytes(from.elements, from_dtype, &random);
      const int64_t size = to.elements * ByteSizeOf(to_dtype);
      EXPECT_EQ(gather->SourceOffset(gather->part_count()), std::ssize(source));
      EXPECT_EQ(gather->destination_bytes(), size);
      Bytes expected(size, std::byte{0xff});
      Reorder::Make(from.layout, from_dtype, to.layout, to_dtype)
          .Run(source.data(), expected.data());
      Bytes found(size, std::byte{0xff});
      std::vector<int64_t> parts(gather->part_count());
      std::iota(parts.begin(), parts.end(), 0);
      std::shuffle(parts.begin(), parts.end(), random);
      EXPECT_EQ(gather->SourceOffset(std::ssize(parts)), std::ssize(source));
      for (int64_t part : parts) {
        gather->Run(
            [&](int64_t offset, absl::Span<std::byte> to) {
              std::copy_n(source.begin() + offset, to.size(), to.begin());
            },
            found.data(), part, part + 1);
      }
      EXPECT_TRUE(found == expected);
    }
  }
  return possible;
}

TEST(IntakeTest, EqualsAReorderOfTheWhole) {
  EXPECT_EQ(CheckAllPairs({3, 20, 5, 7}), 25);
  EXPECT_EQ(CheckAllPairs({1, 1, 1}), 25);
  EXPECT_EQ(CheckAllPairs({2, 33, 3, 4, 5}), 25);
}

TEST(IntakeTest, CutsLargeImages) {
  // Tensors of 700 KB to 1.4 MB.
  EXPECT_EQ(CheckAllPairs({2, 40, 97, 90}), 25);
  EXPECT_EQ(CheckAllPairs({2, 40, 11, 97, 9}), 25);
}

TEST(IntakeTest, RefusesWhatItCannotCut) {
  const auto make = [](const Dims& dims, Layout layout) {
    const TensorDescriptor from{DataType::kF32, layout, dims};
    return ScatteredReorder::Make(PhysicalLayoutOf(from), DataType::kF32,
                                  ChannelBlocked(dims, 16), DataType::kF32);
  };
  EXPECT_TRUE(make({2, 16, 8, 8}, Layout::kNCX));
  EXPECT_FALSE(make({0, 16, 8, 8}, Layout::kNCX));
  // Sixteen channels have 512 KiB each, too much for a slab.
  EXPECT_FALSE(make({1, 32, 512, 256}, Layout::kNCX));
  EXPECT_TRUE(make({1, 32, 512, 256}, Layout::kNXC));
}

}  // namespace
}  // namespace convgrad
