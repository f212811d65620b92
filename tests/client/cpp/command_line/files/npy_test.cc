#include "client/cpp/command_line/files/npy.h"

#include <signal.h>
#include <sys/resource.h>

#include <cstring>
#include <filesystem>

#include "backends/core/status.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

// Returns a file in NumPy's format: `header` padded, then `data`.
std::string File(const std::string& header, const std::string& data,
                 char version = 1) {
  std::string bytes = std::string("\x93NUMPY", 6) + version + '\0';
  const size_t length = header.size() + 1;
  bytes += static_cast<char>(length & 0xff);
  bytes += static_cast<char>(length >> 8);
  if (version > 1) bytes += std::string(2, '\0');
  return bytes + header + '\n' + data;
}

std::string Header(const std::string& descr, const std::string& shape) {
  return "{'descr': '" + descr +
         "', 'fortran_order': False, 'shape': " + shape + ", }";
}

void ExpectRefused(const std::string& bytes, const std::string& found) {
  const absl::Status status = ParseNpy(bytes, "x.npy").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const auto detail = DetailOf(status);
  ASSERT_TRUE(detail.has_value()) << status;
  EXPECT_EQ(detail->field, "x.npy");
  EXPECT_NE(detail->found.find(found), std::string::npos) << status;
}

TEST(NpyTest, AFileThatCannotBeWrittenStaysAsItWas) {
  const std::string folder = testing::TempDir() + "/npy_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  const std::string path = folder + "/x.npy";
  const NpyArray old{DataType::kU8, {3}, "old"};
  ASSERT_TRUE(WriteNpy(path, old).ok());
  // Nothing may be written, as on a full disk.
  rlimit limit;
  getrlimit(RLIMIT_FSIZE, &limit);
  signal(SIGXFSZ, SIG_IGN);
  const rlimit none{0, limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &none);
  const absl::Status failed = WriteNpy(path, {DataType::kU8, {3}, "new"});
  setrlimit(RLIMIT_FSIZE, &limit);
  EXPECT_EQ(failed.code(), absl::StatusCode::kInternal);
  const auto found = ReadNpy(path);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->data, "old");
  EXPECT_EQ(ReadNpy(folder).status().code(), absl::StatusCode::kNotFound);
  std::filesystem::remove(path);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST(NpyTest, ALinkStays) {
  const std::string folder = testing::TempDir() + "/npy_test_links";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder + "/data");
  const std::string link = folder + "/x.npy";
  std::filesystem::create_symlink("data/y.npy", link);
  for (const char* text : {"one", "two"}) {
    ASSERT_TRUE(WriteNpy(link, {DataType::kU8, {3}, text}).ok());
    EXPECT_TRUE(std::filesystem::is_symlink(link));
    const auto found = ReadNpy(folder + "/data/y.npy");
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->data, text);
  }
  std::filesystem::remove_all(folder);
}

TEST(NpyTest, ReadsWhatItWrites) {
  for (DataType dtype : {DataType::kF32, DataType::kBF16, DataType::kF16,
                         DataType::kU8, DataType::kI64, DataType::kU16}) {
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
             {}, {3}, {2, 3}, {0, 4}, {1, 2, 3, 4, 5}}) {
      NpyArray array{dtype, shape, ""};
      int64_t elements = 1;
      for (int64_t extent : shape) elements *= extent;
      for (int64_t i = 0; i < elements * ByteSizeOf(dtype); ++i) {
        array.data += static_cast<char>(i);
      }
      const std::string bytes = SerializeNpy(array);
      EXPECT_EQ((bytes.size() - array.data.size()) % 64, 0u);
      const auto read = ParseNpy(bytes, "x.npy");
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ(read->dtype, dtype);
      EXPECT_EQ(read->shape, shape);
      EXPECT_EQ(read->data, array.data);
    }
  }
}

TEST(NpyTest, ReadsNumpysHeaders) {
  const std::string data(24, '\1');
  for (char version : {1, 2, 3}) {
    const auto array =
        ParseNpy(File(Header("<f4", "(2, 3)"), data, version), "x.npy");
    ASSERT_TRUE(array.ok()) << array.status();
    EXPECT_EQ(array->shape, (std::vector<int64_t>{2, 3}));
  }
  EXPECT_EQ(ParseNpy(File(Header("<u2", "(12,)"), data), "x.npy")->dtype,
            DataType::kU16);
  EXPECT_EQ(ParseNpy(File(Header("<V2", "(12,)"), data), "x.npy")->dtype,
            DataType::kBF16);
  // A tensor of one axis is the same in both orders.
  EXPECT_TRUE(ParseNpy(File("{'descr': '<f4', 'fortran_order': True, "
                            "'shape': (6,), }",
                            data),
                       "x.npy")
                  .ok());
}

TEST(NpyTest, SaysWhatItDoesNotRead) {
  const std::string data(24, '\0');
  ExpectRefused("", "no NumPy magic");
  ExpectRefused("PK\x03\x04 a zip", "no NumPy magic");
  ExpectRefused(File(Header("<f4", "(6,)"), data, 4), "version 4");
  ExpectRefused(File(Header("<f8", "(3,)"), data), "dtype '<f8'");
  ExpectRefused(File(Header(">f4", "(6,)"), data), "dtype '>f4'");
  ExpectRefused(File(Header(">u2", "(12,)"), data), "dtype '>u2'");
  ExpectRefused(File(Header("<u2", "(1,)"), "abc"), "3 bytes of data");
  ExpectRefused(File(Header("<f4", "(7,)"), data), "24 bytes of data");
  ExpectRefused(File(Header("<f4", "(5,)"), data), "24 bytes of data");
  ExpectRefused(File(Header("<f4", "(2, -3)"), data), "extent -3");
  ExpectRefused(File(Header("<f4", "(4294967296, 4294967296)"), data), "24");
  ExpectRefused(File("{'descr': '<f4', 'fortran_order': True, "
                     "'shape': (2, 3), }",
                     data),
                "Fortran order");
  ExpectRefused(File("{'fortran_order': False, 'shape': (6,), }", data),
                "without it");
  ExpectRefused(File("{'descr': '<f4', 'shape': (6", data), "without it");
}

TEST(NpyTest, SurvivesFilesCutAnywhere) {
  const std::string bytes = File(Header("<f4", "(2, 3)"), std::string(24, 'x'));
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(ParseNpy(bytes.substr(0, size), "x.npy").ok()) << size;
  }
}

TEST(NpyTest, NamesTheFileThatIsNotThere) {
  EXPECT_EQ(ReadNpy("no/such/file.npy").status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(WriteNpy("no/such/folder/x.npy", {}).code(),
            absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace convgrad
