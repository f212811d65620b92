#include "server/snapshots/manifest.h"

#include <functional>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/sha256.h"
#include "server/snapshots/image_items.h"
#include "server/snapshots/manifest.pb.h"
#include "tests/server/snapshots/images.h"

namespace convgrad {
namespace {

using testing::HasSubstr;

Manifest SomeManifest() {
  Manifest manifest;
  manifest.fencing_number = 3;
  manifest.generation = 12;
  manifest.image = ImageOf(5);
  manifest.parts = {{std::string(32, 'a'), 20000}, {std::string(32, 'b'), 400}};
  const std::vector<ImageItem> items = ItemsOf(manifest.image);
  for (const ImageItem& item : items) {
    manifest.part_of.push_back(item.bytes() < 100 ? 1 : 0);
  }
  return manifest;
}

// Returns the manifest after `change`, with the digest that fits.
std::string Changed(const std::function<void(snapshots::Manifest*)>& change) {
  const std::string file = EncodeManifest(SomeManifest());
  snapshots::Manifest message;
  EXPECT_TRUE(message.ParseFromString(file.substr(0, file.size() - 32)));
  change(&message);
  const std::string changed = message.SerializeAsString();
  return changed + Sha256Of(changed);
}

TEST(ManifestTest, DecodesWhatItEncodes) {
  const Manifest manifest = SomeManifest();
  auto decoded = DecodeManifest(EncodeManifest(manifest));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->fencing_number, 3);
  EXPECT_EQ(decoded->generation, 12);
  EXPECT_EQ(decoded->part_of, manifest.part_of);
  ASSERT_EQ(decoded->parts.size(), 2);
  EXPECT_EQ(decoded->parts[0].sha256, std::string(32, 'a'));
  EXPECT_EQ(decoded->parts[1].bytes, 400);
  const std::vector<ImageItem> before = ItemsOf(manifest.image);
  const std::vector<ImageItem> after = ItemsOf(decoded->image);
  ASSERT_EQ(before.size(), after.size());
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(before[i].name, after[i].name);
    EXPECT_EQ(before[i].dtype, after[i].dtype);
    EXPECT_EQ(before[i].shape, after[i].shape);
    EXPECT_EQ(before[i].bytes(), after[i].bytes());
    EXPECT_EQ(after[i].data.bytes.data(), nullptr);
  }
  SetItems(before, &decoded->image);
  EXPECT_EQ(TextOf(decoded->image), TextOf(manifest.image));
}

TEST(ManifestTest, KeepsEveryLayout) {
  Manifest manifest = SomeManifest();
  manifest.image.tensors = {
      TensorOf("a", {DataType::kF16, Layout::kNXC, {2, 3, 4, 5}}, 1),
      TensorOf("b", {DataType::kF32, Layout::kOXI, {2, 3, 4, 5}}, 1),
      TensorOf("c", {DataType::kF32, Layout::kXIO, {2, 3, 4, 5}}, 1),
      TensorOf("d", {DataType::kU16, Layout::kNDC1HWC0, {2, 3, 4, 5}, 16}, 1),
      TensorOf("e", {DataType::kBF16, Layout::kFractalZ3D, {4, 3, 2}, 8, 2},
               1)};
  manifest.parts[0].bytes = 1 << 20;
  manifest.part_of.assign(ItemsOf(manifest.image).size(), 0);
  const auto decoded = DecodeManifest(EncodeManifest(manifest));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  for (size_t i = 0; i < manifest.image.tensors.size(); ++i) {
    EXPECT_EQ(decoded->image.tensors[i].descriptor,
              manifest.image.tensors[i].descriptor);
  }
}

TEST(ManifestTest, RefusesEveryFlippedBit) {
  const std::string file = EncodeManifest(SomeManifest());
  for (size_t i = 0; i < file.size(); ++i) {
    std::string flipped = file;
    flipped[i] ^= 4;
    EXPECT_TRUE(absl::IsInvalidArgument(DecodeManifest(flipped).status())) << i;
  }
}

TEST(ManifestTest, RefusesEveryShorterFile) {
  const std::string file = EncodeManifest(SomeManifest());
  for (size_t i = 0; i < file.size(); ++i) {
    EXPECT_FALSE(DecodeManifest(file.substr(0, i)).ok()) << i;
  }
}

TEST(ManifestTest, RefusesOtherMessages) {
  const std::string text = "no message of protobuf";
  EXPECT_THAT(DecodeManifest(text + Sha256Of(text)).status().message(),
              HasSubstr("no message"));
}

TEST(ManifestTest, RefusesALaterVersion) {
  const auto decoded = DecodeManifest(
      Changed([](snapshots::Manifest* m) { m->set_format_version(2); }));
  EXPECT_TRUE(absl::IsUnimplemented(decoded.status()));
  EXPECT_THAT(decoded.status().message(), HasSubstr("found 2, expected 1"));
}

struct Refused {
  std::function<void(snapshots::Manifest*)> change;
  std::string message;
};

class ManifestRefusalTest : public testing::TestWithParam<Refused> {};

TEST_P(ManifestRefusalTest, NamesWhatIsWrong) {
  const auto decoded = DecodeManifest(Changed(GetParam().change));
  EXPECT_TRUE(absl::IsInvalidArgument(decoded.status())) << decoded.status();
  EXPECT_THAT(decoded.status().message(), HasSubstr(GetParam().message));
}

using M = snapshots::Manifest*;

INSTANTIATE_TEST_SUITE_P(
    Fields, ManifestRefusalTest,
    testing::Values(
        Refused{[](M m) { m->mutable_session()->set_id("short"); },
                "session id bytes: found 5"},
        Refused{[](M m) {
                  m->mutable_session()->set_trainer_state(
                      std::string(65537, 't'));
                },
                "trainer_state bytes: found 65537"},
        Refused{[](M m) {
                  for (int i = 0; i < 63; ++i) {
                    m->mutable_session()->add_computed_by()->set_name(
                        absl::StrCat("fact ", i));
                  }
                },
                "computed_by facts: found 65, expected at most 64"},
        Refused{[](M m) {
                  m->mutable_session()->add_computed_by()->set_text(
                      std::string(1025, 'f'));
                },
                "a fact of 1025 bytes"},
        Refused{[](M m) {
                  m->mutable_session()->add_computed_by()->set_text("\xff");
                },
                "printable ASCII"},
        Refused{[](M m) { m->mutable_session()->set_number(-1); }, "number"},
        Refused{[](M m) { m->mutable_session()->set_epoch(-1); }, "epoch"},
        Refused{[](M m) { m->mutable_session()->set_first_epoch(-1); },
                "first_epoch"},
        Refused{[](M m) { m->mutable_session()->set_resumed_by("short"); },
                "resumed_by bytes: found 5"},
        Refused{[](M m) {
                  m->mutable_session()->set_number(
                      std::numeric_limits<int64_t>::max());
                },
                "number: found 9223372036854775807"},
        Refused{[](M m) { m->mutable_session()->set_epoch(int64_t{1} << 62); },
                "epoch: found 4611686018427387904"},
        Refused{[](M m) { m->mutable_session()->set_quota_bytes(-1); },
                "quota_bytes"},
        Refused{[](M m) { m->mutable_session()->set_lease_nanoseconds(-1); },
                "lease"},
        Refused{[](M m) { m->mutable_parts(0)->set_sha256("short"); },
                "a digest of 5 bytes"},
        Refused{[](M m) { m->mutable_parts(0)->set_bytes(-1); },
                "a file of -1"},
        Refused{[](M m) { m->mutable_parts(0)->set_bytes(300); },
                "conv.weight: found 1152 bytes, expected as many as part 0"},
        Refused{[](M m) { m->mutable_tensors(0)->set_part(2); },
                "found part 2, expected one of 2"},
        Refused{[](M m) { m->mutable_programs(0)->set_part(2); },
                "found part 2"},
        Refused{[](M m) { m->mutable_replies(0)->set_part(4294967295); },
                "found part 4294967295"},
        Refused{[](M m) { m->mutable_tensors(0)->set_dtype("f33"); },
                "an unknown dtype"},
        Refused{[](M m) { m->mutable_tensors(0)->set_layout(""); },
                "an unknown layout"},
        Refused{[](M m) { m->mutable_tensors(0)->set_dims(0, -8); },
                "dims of its layout"},
        Refused{[](M m) {
                  m->mutable_tensors(0)->set_dims(
                      0, std::numeric_limits<int64_t>::max());
                },
                "dims of its layout"},
        Refused{[](M m) {
                  for (int i = 0; i < 9; ++i)
                    m->mutable_tensors(0)->add_dims(1);
                },
                "rank 13"},
        Refused{[](M m) { m->mutable_tensors(0)->set_layout("NDC1HWC0"); },
                "dims of its layout"},
        Refused{[](M m) {
                  m->mutable_tensors(0)->set_layout("FRACTAL_Z_3D");
                  m->mutable_tensors(0)->set_c0(8);
                },
                "dims of its layout"},
        Refused{[](M m) {
                  m->mutable_tensors(0)->set_layout("FRACTAL_Z_3D");
                  m->mutable_tensors(0)->set_c0(8);
                  m->mutable_tensors(0)->set_groups(3);
                },
                "dims of its layout"},
        Refused{[](M m) { m->mutable_tensors(0)->set_version(-1); }, "version"},
        Refused{[](M m) { m->mutable_tensors(0)->set_name(""); },
                "printable ASCII"},
        Refused{[](M m) { m->mutable_tensors(0)->set_name("../a"); },
                "printable ASCII"},
        Refused{
            [](M m) { m->mutable_tensors(0)->set_name(std::string(256, 'n')); },
            "printable ASCII"},
        Refused{[](M m) { m->mutable_tensors(0)->set_name("bias"); },
                "tensor 'bias': found the name twice"},
        Refused{[](M m) { m->mutable_programs(0)->set_name("a\n"); },
                "program 'a\\n'"},
        Refused{[](M m) { m->mutable_programs(0)->set_bytes(-1); },
                "program: found -1"},
        Refused{[](M m) { m->mutable_replies(0)->set_bytes(-5); },
                "reply: found -5"},
        Refused{[](M m) { m->mutable_replies(0)->set_number(0); }, "reply"},
        Refused{[](M m) { m->mutable_replies(0)->set_number(7); }, "reply"}));

}  // namespace
}  // namespace convgrad
