// Damages every byte of a small snapshot.
#include <functional>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/snapshots/session_files.h"
#include "server/snapshots/snapshot_store.h"
#include "tests/server/snapshots/images.h"
#include "tests/server/snapshots/memory_files.h"

namespace convgrad {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// The session has generations 2 and 3, which share a part.
class SnapshotDamageTest : public testing::Test {
 protected:
  SnapshotDamageTest() {
    auto store = SnapshotStore::Open("s", &files_);
    EXPECT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    const ImageTensor frozen = VectorOf("frozen", 300, 0);
    for (int64_t number = 1; number <= 3; ++number) {
      SessionImage image = ImageOf(number);
      image.tensors = {frozen, VectorOf("weight", 200, number)};
      images_.push_back(TextOf(image));
      EXPECT_TRUE(store_->Write(image).ok());
    }
    for (const int64_t number : {2, 3}) {
      const auto manifest =
          DecodeManifest(files_.Contents()[folder_ + ManifestName(number)]);
      EXPECT_TRUE(manifest.ok()) << manifest.status();
      files_of_[number] = {ManifestName(number)};
      for (const ManifestPart& part : manifest->parts) {
        files_of_[number].insert(PartName(part.sha256));
      }
    }
  }

  // Loads after the damage of a file, and checks what Load returns.
  void ExpectOlderOrRefused(const std::string& name) {
    const auto loaded = store_->Load(key_, AllocateForTest);
    const bool hits_older = files_of_[2].count(name) != 0;
    const bool hits_newer = files_of_[3].count(name) != 0;
    ASSERT_TRUE(hits_older || hits_newer) << name;
    if (hits_older && hits_newer) {
      ASSERT_TRUE(absl::IsDataLoss(loaded.status())) << loaded.status();
      EXPECT_THAT(loaded.status().message(), HasSubstr("generation 3: "));
      EXPECT_THAT(loaded.status().message(), HasSubstr("generation 2: "));
      return;
    }
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(loaded->generation, hits_newer ? 2 : 3);
    EXPECT_EQ(TextOf(loaded->image), images_[loaded->generation - 1]);
    if (hits_older) {
      EXPECT_THAT(loaded->broken, IsEmpty());
      return;
    }
    ASSERT_EQ(loaded->broken.size(), 1);
    EXPECT_THAT(loaded->broken[0], HasSubstr("generation 3: "));
    EXPECT_THAT(loaded->broken[0], HasSubstr("expected"));
    if (!ManifestNumber(name)) {
      EXPECT_THAT(loaded->broken[0], HasSubstr(name));
    }
  }

  // Tries `damage` with each position in each file.
  void ForEachByte(
      const std::function<std::string(std::string, size_t)>& damage) {
    size_t tried = 0;
    const auto names = files_.List(folder_);
    ASSERT_TRUE(names.ok() && names->size() == 5) << names.status();
    for (const std::string& name : *names) {
      const std::string path = folder_ + name;
      const std::string content = files_.Contents()[path];
      for (size_t i = 0; i < content.size(); ++i) {
        files_.Put(path, damage(content, i));
        SCOPED_TRACE(path + " byte " + std::to_string(i));
        ASSERT_NO_FATAL_FAILURE(ExpectOlderOrRefused(name));
        ++tried;
      }
      files_.Put(path, content);
    }
    EXPECT_GT(tried, 1900);
    EXPECT_EQ(store_->Load(key_, AllocateForTest)->generation, 3);
  }

  MemoryFiles files_;
  std::unique_ptr<SnapshotStore> store_;
  const std::string key_ = SessionKeyOf(IdOf(0));
  const std::string folder_ = "s/sessions/" + key_ + "/";
  std::vector<std::string> images_;
  std::map<int64_t, std::set<std::string>> files_of_;
};

// The part that all generations share is written again if it is missing or
// shorter.
TEST_F(SnapshotDamageTest, AWriteReplacesALostPart) {
  SessionImage image = ImageOf(3);
  image.tensors = {VectorOf("frozen", 2 << 20, 0)};
  for (int64_t number = 4; number <= 5; ++number) {
    image.head.set_number(number);
    ASSERT_TRUE(store_->Write(image).ok());
  }
  std::string shared;
  for (const auto& [path, content] : files_.Contents()) {
    if (content.size() > 2 << 20) shared = path;
  }
  const std::string content = files_.Contents()[shared];
  const auto damages = {
      std::function<void()>([&] { ASSERT_TRUE(files_.Unlink(shared).ok()); }),
      std::function<void()>([&] { files_.Put(shared, content.substr(1)); })};
  for (const auto& damage : damages) {
    damage();
    image.head.set_number(image.head.number() + 1);
    ASSERT_TRUE(store_->Write(image).ok());
    const auto loaded = store_->Load(key_, AllocateForTest);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(TextOf(loaded->image), TextOf(image));
    EXPECT_THAT(loaded->broken, IsEmpty());
    // The image that was loaded has other owners.
    image = loaded->image;
  }
}

TEST_F(SnapshotDamageTest, FindsEveryFlippedByte) {
  ForEachByte([](std::string content, size_t i) {
    content[i] = static_cast<char>(~content[i]);
    return content;
  });
}

TEST_F(SnapshotDamageTest, FindsEveryFlippedBitOfOrder) {
  ForEachByte([](std::string content, size_t i) {
    content[i] ^= static_cast<char>(1 << (i % 8));
    return content;
  });
}

TEST_F(SnapshotDamageTest, FindsEveryShorterFile) {
  ForEachByte(
      [](std::string content, size_t i) { return content.substr(0, i); });
}

TEST_F(SnapshotDamageTest, FindsEveryInsertedByte) {
  ForEachByte([](std::string content, size_t i) {
    content.insert(i, 1, ' ');
    return content;
  });
}

TEST_F(SnapshotDamageTest, FindsMissingFiles) {
  const auto names = files_.List(folder_);
  ASSERT_TRUE(names.ok());
  for (const std::string& name : *names) {
    // Without its manifest nothing tells that there was a generation 3.
    if (name == "manifest-3") continue;
    const std::string content = files_.Contents()[folder_ + name];
    ASSERT_TRUE(files_.Unlink(folder_ + name).ok());
    const auto loaded = store_->Load(key_, AllocateForTest);
    if (files_of_[3].count(name) == 0) {
      EXPECT_EQ(loaded->generation, 3);
    } else if (files_of_[2].count(name) == 0) {
      EXPECT_EQ(loaded->generation, 2);
      EXPECT_THAT(loaded->broken, testing::ElementsAre(HasSubstr(name)));
    } else {
      EXPECT_TRUE(absl::IsDataLoss(loaded.status()));
    }
    files_.Put(folder_ + name, content);
  }
}

TEST_F(SnapshotDamageTest, NamesTheManifestThatIsDamaged) {
  for (const char* name : {"manifest-2", "manifest-3"}) {
    files_.Put(folder_ + name, "broken");
  }
  const auto entries = store_->List();
  ASSERT_TRUE(entries.ok());
  ASSERT_EQ(entries->size(), 1);
  EXPECT_THAT(entries->front().status.message(),
              HasSubstr(folder_ + "manifest-2: manifest: found 6 bytes"));
}

TEST_F(SnapshotDamageTest, TakesNoMemoryForAFileOfAnotherSize) {
  for (const std::string& name : files_of_[3]) {
    if (!ManifestNumber(name)) files_.Put(folder_ + name, "short");
  }
  const auto loaded =
      store_->Load(key_, [](int64_t) -> absl::StatusOr<WritableBytes> {
        ADD_FAILURE() << "took memory";
        return absl::InternalError("");
      });
  EXPECT_THAT(loaded.status().message(),
              HasSubstr("found the end at byte 5, expected"));
}

TEST_F(SnapshotDamageTest, ReplacesABrokenGeneration) {
  files_.Put(folder_ + "manifest-3", "broken");
  auto loaded = store_->Load(key_, AllocateForTest);
  ASSERT_TRUE(loaded.ok());
  ASSERT_TRUE(store_->Write(ImageOf(7)).ok());
  loaded = store_->Load(key_, AllocateForTest);
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->generation, 4);
  EXPECT_THAT(loaded->broken, IsEmpty());
  EXPECT_EQ(files_.Contents().count(folder_ + "manifest-2"), 1);
  EXPECT_EQ(files_.Contents().count(folder_ + "manifest-3"), 0);
}

}  // namespace
}  // namespace convgrad
