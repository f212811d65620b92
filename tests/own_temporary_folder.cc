// This file gives a test program its own temporary folder. Sockets, tokens and
// certificates with the same names then don't collide when two programs run at
// once.
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "gtest/gtest.h"

namespace convgrad {
namespace {

// testing::TempDir() is this folder from before the first test until after the
// last one.
class OwnTemporaryFolder : public testing::Environment {
 public:
  void SetUp() override {
    if (mkdtemp(path_.data()) == nullptr) std::abort();
    setenv("TEST_TMPDIR", path_.c_str(), /*replace=*/1);
  }
  void TearDown() override {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

 private:
  std::string path_ =
      std::filesystem::temp_directory_path() / "convgrad_testXXXXXX";
};

[[maybe_unused]] const testing::Environment* const folder =
    testing::AddGlobalTestEnvironment(new OwnTemporaryFolder);

}  // namespace
}  // namespace convgrad
