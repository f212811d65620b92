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
