#include "server/token_file.h"

#include <sys/stat.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

TEST(TokenFile, TellsABadFileAndRecovers) {
  const std::string path = absl::StrCat(testing::TempDir(), "/tokens");
  std::ofstream(path) << "trainer train token-token-token-token\n";
  Gate gate;
  TokenFile file(path, &gate);
  EXPECT_TRUE(file.Refresh().ok());
  EXPECT_TRUE(file.Refresh().ok());
  std::ofstream(path) << "rubbish\n";
  EXPECT_FALSE(file.Refresh().ok());
  EXPECT_FALSE(file.Refresh().ok());
  std::ofstream(path) << "\nrubbish\n";
  EXPECT_FALSE(file.Refresh().ok());
  std::remove(path.c_str());
  EXPECT_FALSE(file.Refresh().ok());
  std::ofstream(path) << "";
  EXPECT_TRUE(file.Refresh().ok());
}

TEST(TokenFile, RefusesAPipe) {
  const std::string path = absl::StrCat(testing::TempDir(), "/token_pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  Gate gate;
  EXPECT_FALSE(TokenFile(path, &gate).Refresh().ok());
  std::remove(path.c_str());
}

TEST(TokenFile, NoPathIsNoFile) {
  Gate gate;
  EXPECT_TRUE(TokenFile("", &gate).Refresh().ok());
}

}  // namespace
}  // namespace convgrad
