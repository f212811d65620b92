// Compares the README's support table with the server's capabilities.
#include "client/cpp/command_line/support_table.h"

#include <fstream>
#include <sstream>
#include <utility>

#include "client/cpp/client.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/test_server.h"

namespace convgrad {
namespace {

// Returns the text between the README's two markers.
std::string ReadmeTable() {
  std::ifstream file(CONVGRAD_README);
  std::stringstream text;
  text << file.rdbuf();
  const std::string readme = text.str();
  const size_t marker = readme.find("<!-- support: begin");
  const size_t begin = readme.find('\n', marker) + 1;
  const size_t end = readme.find("<!-- support: end -->", begin);
  if (marker == std::string::npos || end == std::string::npos) return "";
  return readme.substr(begin, end - begin);
}

TEST(SupportTableTest, ReadmeShowsWhatTheServerSays) {
  // The table excludes the GPU backend, because not every machine has a GPU.
  std::vector<RegisteredBackend> backends;
  for (RegisteredBackend& entry : MakeBackends()) {
    if (entry.name != "cuda") backends.push_back(std::move(entry));
  }
  TestServer server(TestConfig(), std::move(backends));
  auto client = Client::Connect({server.address()});
  ASSERT_TRUE(client.ok()) << client.status();
  const auto capabilities =
      (*client)->Capabilities(absl::Now() + absl::Minutes(1));
  ASSERT_TRUE(capabilities.ok()) << capabilities.status();
  EXPECT_EQ(ReadmeTable(), SupportTable(*capabilities))
      << "run `convgrad capabilities` and put its table into "
         "backends/README.md";
}

TEST(SupportTableTest, NamesWhatABackendRefuses) {
  v1::GetCapabilitiesResponse response;
  v1::BackendCapabilities* backend = response.add_backends();
  backend->set_name("x");
  backend->set_available(true);
  backend->add_dtypes(v1::DATA_TYPE_BF16);
  backend->add_gaps("grad_bias");
  const std::string table = SupportTable(response);
  EXPECT_NE(table.find("| dtypes | bf16 |"), std::string::npos) << table;
  EXPECT_NE(table.find("| valid, but refused | grad_bias |"), std::string::npos)
      << table;
}

}  // namespace
}  // namespace convgrad
