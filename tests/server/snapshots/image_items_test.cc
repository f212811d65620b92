#include "server/snapshots/image_items.h"

#include <string>

#include "absl/strings/ascii.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/snapshots/images.h"

namespace convgrad {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int64_t> ShapeOf(const TensorDescriptor& descriptor) {
  SessionImage image;
  image.tensors = {TensorOf("a", descriptor, 1)};
  return ItemsOf(image)[0].shape;
}

TEST(ImageItemsTest, NamesItemsOnce) {
  std::vector<std::string> names;
  for (const ImageItem& item : ItemsOf(ImageOf(5))) names.push_back(item.name);
  EXPECT_THAT(names, ElementsAre("conv.weight", "conv.weight#momentum", "bias",
                                 "tensor/__metadata__", "empty", "frozen",
                                 "program/net", "reply/6"));
}

TEST(ImageItemsTest, HasEachDtypeInTheWordsOfSafetensors) {
  SessionImage image;
  for (const DataType dtype : {DataType::kF32, DataType::kBF16, DataType::kF16,
                               DataType::kU8, DataType::kI64, DataType::kU16}) {
    image.tensors = {TensorOf("a", {dtype, Layout::kNCX, {3}}, 1)};
    const ImageItem item = ItemsOf(image)[0];
    EXPECT_EQ(item.dtype, absl::AsciiStrToUpper(NameOf(dtype)));
    EXPECT_EQ(item.element_bytes, ByteSizeOf(dtype)) << item.dtype;
  }
}

TEST(ImageItemsTest, GivesDimsInTheOrderOfMemory) {
  const auto f32 = DataType::kF32;
  EXPECT_THAT(ShapeOf({f32, Layout::kNCX, {2, 3, 4, 5}}),
              ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(ShapeOf({f32, Layout::kNXC, {2, 3, 4, 5}}),
              ElementsAre(2, 4, 5, 3));
  EXPECT_THAT(ShapeOf({f32, Layout::kOIX, {2, 3, 4, 5}}),
              ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(ShapeOf({f32, Layout::kOXI, {2, 3, 4, 5}}),
              ElementsAre(2, 4, 5, 3));
  EXPECT_THAT(ShapeOf({f32, Layout::kXIO, {2, 3, 4, 5}}),
              ElementsAre(4, 5, 3, 2));
  EXPECT_THAT(ShapeOf({f32, Layout::kXIO, {2, 3}}), ElementsAre(3, 2));
  EXPECT_THAT(ShapeOf({f32, Layout::kXIO, {2}}), ElementsAre(2));
  EXPECT_THAT(ShapeOf({f32, Layout::kNDC1HWC0, {2, 3, 4, 5}, 8}),
              ElementsAre(2 * 4 * 5 * 8));
}

TEST(ImageItemsTest, AcceptsTheImage) {
  EXPECT_TRUE(CheckImage(ImageOf(5)).ok()) << CheckImage(ImageOf(5));
}

TEST(ImageItemsTest, RefusesBytesThatDisagreeWithTheDescriptor) {
  SessionImage image = ImageOf(5);
  image.tensors[0].data.bytes.remove_suffix(1);
  EXPECT_THAT(CheckImage(image).message(),
              HasSubstr("tensor 'conv.weight': found 1151 bytes, expected 1152 "
                        "of f32:OIX[8,4,3,3]"));
}

TEST(ImageItemsTest, RefusesANameTwice) {
  SessionImage image = ImageOf(5);
  image.programs.push_back(image.programs[0]);
  EXPECT_THAT(CheckImage(image).message(), HasSubstr("program 'net'"));
}

TEST(ImageItemsTest, PutsBytesBack) {
  const SessionImage image = ImageOf(5);
  SessionImage other = ImageOf(6);
  SetItems(ItemsOf(image), &other);
  other.head = image.head;
  for (size_t i = 0; i < image.tensors.size(); ++i) {
    other.tensors[i].version = image.tensors[i].version;
  }
  other.replies[0].number = 6;
  other.replies[1].number = 7;
  EXPECT_EQ(TextOf(other), TextOf(image));
}

}  // namespace
}  // namespace convgrad
