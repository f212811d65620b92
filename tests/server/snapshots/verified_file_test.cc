#include "server/snapshots/verified_file.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/snapshots/failing_files.h"
#include "tests/server/snapshots/memory_files.h"

namespace convgrad {
namespace {

using testing::HasSubstr;

constexpr char kPath[] = "d/a";

class VerifiedFileTest : public testing::Test {
 protected:
  VerifiedFileTest() { EXPECT_TRUE(files_.CreateFolder("d").ok()); }

  absl::Status Write(const std::vector<std::string>& texts, FileSystem* files) {
    Pieces pieces;
    for (const std::string& text : texts) pieces.push_back(AsBytes(text));
    return WriteVerifiedFile(kPath, pieces, DigestOf(pieces), files);
  }
  size_t Writes() const {
    size_t writes = 0;
    for (const FileOperation& operation : files_.operations()) {
      writes += operation.kind == FileOperation::Kind::kWrite ? 1 : 0;
    }
    return writes;
  }

  MemoryFiles files_;
};

TEST_F(VerifiedFileTest, HashesPiecesAsOne) {
  EXPECT_EQ(DigestOf({AsBytes("ab"), {}, AsBytes("c")}), Sha256Of("abc"));
  EXPECT_EQ(Sha256Of("abc").substr(0, 4), "\xba\x78\x16\xbf");
}

TEST_F(VerifiedFileTest, GathersSmallPieces) {
  const std::vector<std::string> texts(300, "tensor");
  EXPECT_TRUE(Write(texts, &files_).ok());
  EXPECT_EQ(Writes(), 1);
  EXPECT_EQ(files_.Contents()[kPath].size(), 1800);
}

TEST_F(VerifiedFileTest, WritesLargePiecesInTheirOrder) {
  const auto large = static_cast<size_t>(kTransferBytes);
  const std::vector<std::string> texts = {"a", std::string(2 * large + 1, 'b'),
                                          "c", std::string(large, 'd'),
                                          "e", ""};
  ASSERT_TRUE(Write(texts, &files_).ok());
  EXPECT_EQ(files_.Contents()[kPath],
            texts[0] + texts[1] + texts[2] + texts[3] + texts[4]);
  EXPECT_LE(Writes(), 7);
}

TEST_F(VerifiedFileTest, WritesAnEmptyFile) {
  EXPECT_TRUE(Write({}, &files_).ok());
  EXPECT_EQ(files_.Contents()[kPath], "");
}

TEST_F(VerifiedFileTest, SyncsBeforeItReadsBack) {
  ASSERT_TRUE(Write({"text"}, &files_).ok());
  EXPECT_EQ(files_.operations().back().kind, FileOperation::Kind::kSync);
}

TEST_F(VerifiedFileTest, ContinuesShortReadsAndWrites) {
  FailingFiles files(&files_, [](auto...) { return Fault::kShort; });
  ASSERT_TRUE(Write({"some longer text"}, &files).ok());
  EXPECT_EQ(files_.Contents()[kPath], "some longer text");
  const auto read = ReadWholeFile(kPath, 100, &files);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, "some longer text");
}

TEST_F(VerifiedFileTest, FindsBytesThatTheDiskChanged) {
  FailingFiles files(&files_, [](int64_t, const std::string& name) {
    return name == "write" ? Fault::kFlipped : Fault::kNone;
  });
  const absl::Status status = Write({"text"}, &files);
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(status.message(), HasSubstr("d/a: found SHA-256 "));
}

TEST_F(VerifiedFileTest, FindsAnotherSize) {
  FailingFiles files(&files_, [this](int64_t, const std::string& name) {
    if (name == "open") files_.Put(kPath, "text and more");
    return Fault::kNone;
  });
  EXPECT_THAT(Write({"text"}, &files).message(),
              HasSubstr("d/a: found the end at byte 13, expected at byte 4"));
}

TEST_F(VerifiedFileTest, ReportsEveryError) {
  for (const char* const failing :
       {"create", "write", "sync", "open", "read"}) {
    FailingFiles files(&files_, [&](int64_t, const std::string& name) {
      return name == failing ? Fault::kNoSpace : Fault::kNone;
    });
    EXPECT_TRUE(absl::IsResourceExhausted(Write({"text"}, &files))) << failing;
  }
}

TEST_F(VerifiedFileTest, ReadsNoMoreThanAllowed) {
  files_.Put(kPath, "12345");
  EXPECT_TRUE(ReadWholeFile(kPath, 5, &files_).ok());
  EXPECT_TRUE(absl::IsDataLoss(ReadWholeFile(kPath, 4, &files_).status()));
  EXPECT_TRUE(absl::IsNotFound(ReadWholeFile("d/b", 4, &files_).status()));
}

TEST_F(VerifiedFileTest, FinishesOnlyAtTheEnd) {
  files_.Put(kPath, "12345");
  auto reader = HashedReader::Open(kPath, &files_);
  ASSERT_TRUE(reader.ok());
  std::byte bytes[5];
  EXPECT_TRUE(reader->Read({bytes, 3}).ok());
  EXPECT_TRUE(absl::IsDataLoss(reader->Finish(Sha256Of("123"))));
}

TEST_F(VerifiedFileTest, NamesWhereAFileEnds) {
  files_.Put(kPath, "12345");
  auto reader = HashedReader::Open(kPath, &files_);
  ASSERT_TRUE(reader.ok());
  std::byte bytes[8];
  EXPECT_THAT(reader->Read(bytes).message(),
              HasSubstr("found the end at byte 5, expected at byte 8"));
}

}  // namespace
}  // namespace convgrad
