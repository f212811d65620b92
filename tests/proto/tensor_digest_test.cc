#include "proto/tensor_digest.h"

#include <string>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

TEST(TensorDigest, IsThatOfTheContract) {
  // The digest is SHA-256 of "f32:NCX[1,1]\n" and four zero bytes, computed by
  // another program.
  EXPECT_EQ(absl::BytesToHexString(DigestOf(
                {DataType::kF32, Layout::kNCX, {1, 1}}, std::string(4, '\0'))),
            "850d122019fb24d49befbab6b6c69da2"
            "75133a8e96db8086ae93a084fb561e7c");
}

TEST(TensorDigest, OfBlocksNamesThem) {
  // SHA-256 of "f32:NDC1HWC0/8[1,3,1,1]\n" and 32 zero bytes, and of
  // "f32:FRACTAL_Z_3D/8[2,1,1,1] g2\n" and 512 zero bytes.
  TensorDescriptor image{DataType::kF32, Layout::kNDC1HWC0, {1, 3, 1, 1}};
  image.c0 = 8;
  EXPECT_EQ(absl::BytesToHexString(DigestOf(image, std::string(32, '\0'))),
            "565a797e81896c366bfb4545870b0fb6"
            "60c0da3e06886ca4defbd33b6e7f599d");
  TensorDescriptor weight{DataType::kF32, Layout::kFractalZ3D, {2, 1, 1, 1}};
  weight.c0 = 8;
  weight.groups = 2;
  EXPECT_EQ(absl::BytesToHexString(DigestOf(weight, std::string(512, '\0'))),
            "4cec3517149951ff4744cbf8f6d6f99e"
            "709bb79927b82148797ae29af1abe111");
}

TEST(TensorDigest, TellsWhatHasTheSameBytesApart) {
  const std::string bytes(64, 'b');
  const TensorDescriptor tensor{DataType::kF32, Layout::kOIX, {1, 1, 16}};
  const auto differs = [&](const TensorDescriptor& other) {
    return DigestOf(other, bytes) != DigestOf(tensor, bytes);
  };
  EXPECT_FALSE(differs(tensor));
  EXPECT_TRUE(differs({DataType::kF32, Layout::kOXI, {1, 1, 16}}));
  EXPECT_TRUE(differs({DataType::kF32, Layout::kOIX, {1, 16, 1}}));
  EXPECT_TRUE(differs({DataType::kBF16, Layout::kOIX, {1, 2, 16}}));
}

TEST(TensorDigest, NamesTheGroupsOfABlockedWeight) {
  TensorDescriptor one{DataType::kF32, Layout::kFractalZ3D, {16, 8, 1, 1, 1}};
  one.groups = 1;
  TensorDescriptor two = one;
  two.groups = 2;
  EXPECT_NE(DigestOf(one, ""), DigestOf(two, ""));
}

}  // namespace
}  // namespace convgrad
