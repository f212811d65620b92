// Compares reorders with packed vectors that others published: layouts.jsonl in
// the folder of cases, which isn't part of the repository.
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/kernels/copies/reorder.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

// Returns the position after `"key":` in a record, from `from` on; npos if
// absent.
size_t Find(const std::string& record, const std::string& key) {
  const std::string quoted = absl::StrCat("\"", key, "\":");
  const size_t at = record.find(quoted);
  return at == std::string::npos ? at : at + quoted.size();
}

// Returns the integers of the (nested) list at `key`, or the single integer.
std::vector<int64_t> Integers(const std::string& record,
                              const std::string& key) {
  size_t at = Find(record, key);
  std::vector<int64_t> values;
  if (at == std::string::npos) return values;
  int depth = 0;
  do {
    if (record[at] == '[') {
      ++depth, ++at;
    } else if (record[at] == ']') {
      --depth, ++at;
    } else if (record[at] == ',' || record[at] == ' ') {
      ++at;
    } else {
      char* end;
      values.push_back(std::strtoll(&record[at], &end, 10));
      at = end - record.data();
    }
  } while (depth > 0);
  return values;
}

// Returns the packed destination that a record publishes; empty if it has only
// a digest.
std::vector<float> Published(const std::string& record, size_t size) {
  std::vector<float> expected;
  for (int64_t value : Integers(record, "packed")) expected.push_back(value);
  const std::vector<int64_t> pairs = Integers(record, "dst_src_pairs");
  if (pairs.empty()) return expected;
  expected.assign(size, 0);
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    expected[pairs[i]] = pairs[i + 1] + 1;
  }
  return expected;
}

void ExpectPublished(const std::string& record) {
  const bool is_weight = record.find("FRACTAL_Z_3D") != std::string::npos;
  TensorDescriptor plain;
  plain.layout = is_weight ? Layout::kOIX : Layout::kNCX;
  for (int64_t extent : Integers(record, "src_shape")) {
    plain.dims.push_back(extent);
  }
  TensorDescriptor packed = plain;
  packed.layout = is_weight ? Layout::kFractalZ3D : Layout::kNDC1HWC0;
  packed.c0 = Integers(record, "c0").at(0);
  if (is_weight) packed.groups = Integers(record, "groups").at(0);

  std::vector<float> source(ElementCount(plain));
  for (size_t i = 0; i < source.size(); ++i) source[i] = i + 1;
  std::vector<float> got(*ByteSize(packed) / sizeof(float), -1);
  ASSERT_EQ(static_cast<int64_t>(got.size()),
            Integers(record, "packed_elems").at(0));
  Reorder::Make(plain, packed).Run(source.data(), got.data());
  const std::vector<float> expected = Published(record, got.size());
  if (!expected.empty()) {
    EXPECT_EQ(got, expected);
  }
  std::vector<float> back(source.size(), -1);
  Reorder::Make(packed, plain).Run(got.data(), back.data());
  EXPECT_EQ(back, source);
}

TEST(ReorderVectorsTest, PublishedLayouts) {
  const char* folder = std::getenv("CONVGRAD_CASES");
  const std::string path = absl::StrCat(
      folder != nullptr ? folder : CONVGRAD_DEFAULT_CASES, "/layouts.jsonl");
  std::ifstream file(path);
  if (!file) {
    std::cout << "no " << path << ", nothing compared\n";
    return;
  }
  int records = 0;
  for (std::string line; std::getline(file, line); ++records) {
    SCOPED_TRACE(line.substr(0, 80));
    ExpectPublished(line);
  }
  std::cout << records << " records of " << path << "\n";
}

}  // namespace
}  // namespace convgrad
