#include "server/snapshots/safetensors.h"

#include <string>

#include "gtest/gtest.h"
#include "tests/server/snapshots/images.h"

namespace convgrad {
namespace {

TEST(SafetensorsTest, WritesTheFormat) {
  const std::vector<ImageItem> items = {
      {"a \"name\"", "BF16", 2, {}, BytesOf("xx")},
      {"w", "F32", 4, {2, 3}, BytesOf(std::string(24, 'w'))},
      {"none", "U8", 1, {0, 7}, BytesOf("")}};
  const std::string json =
      R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("a \"name\"":{"dtype":"BF16","shape":[],"data_offsets":[24,26]},)"
      R"("none":{"dtype":"U8","shape":[0,7],"data_offsets":[26,26]}})";
  EXPECT_EQ(MakeSafetensorsHeader(items, {1, 0, 2}),
            std::string("\xb8\0\0\0\0\0\0\0", 8) + json +
                std::string(184 - json.size(), ' '));
}

TEST(SafetensorsTest, WritesAFileWithoutTensors) {
  EXPECT_EQ(MakeSafetensorsHeader({}, {}),
            std::string("\x38\0\0\0\0\0\0\0", 8) + "{}" + std::string(54, ' '));
}

}  // namespace
}  // namespace convgrad
