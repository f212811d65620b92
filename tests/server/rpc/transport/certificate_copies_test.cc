#include "server/rpc/transport/certificate_copies.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "backends/core/status.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/certificates.h"

namespace convgrad {
namespace {

std::string TextOf(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TlsFiles FilesOf(const Authority& authority) {
  return {authority.PathOf("server.cert"), authority.PathOf("server.key"),
          authority.certificate()};
}

void ExpectEqual(const TlsFiles& copies, const TlsFiles& files) {
  EXPECT_EQ(TextOf(copies.cert), TextOf(files.cert));
  EXPECT_EQ(TextOf(copies.key), TextOf(files.key));
  EXPECT_EQ(TextOf(copies.client_ca), TextOf(files.client_ca));
}

TEST(CertificateCopies, FollowTheFilesAtTheSamePaths) {
  Authority authority("ca");
  authority.Issue("server");
  const TlsFiles files = FilesOf(authority);
  CertificateCopies certificates(files);
  ASSERT_EQ(certificates.Refresh(), absl::OkStatus());
  const TlsFiles copies = certificates.paths();
  ExpectEqual(copies, files);
  const std::string key_before = TextOf(files.key);
  authority.Issue("server");
  ASSERT_NE(TextOf(files.key), key_before);
  ASSERT_EQ(certificates.Refresh(), absl::OkStatus());
  ExpectEqual(copies, files);
}

TEST(CertificateCopies, AnUnusableFileIsRefusedAndChangesNothing) {
  Authority authority("ca");
  authority.Issue("server");
  const TlsFiles files = FilesOf(authority);
  CertificateCopies certificates(files);
  ASSERT_EQ(certificates.Refresh(), absl::OkStatus());
  Authority saved("saved");
  saved.Issue("server");
  const TlsFiles good = FilesOf(saved);
  for (const auto& [from, to] :
       {std::pair{files.cert, good.cert}, std::pair{files.key, good.key},
        std::pair{files.client_ca, good.client_ca}}) {
    std::filesystem::copy_file(
        from, to, std::filesystem::copy_options::overwrite_existing);
  }
  for (const auto& [file, field] :
       {std::pair{files.key, "--tls_key"}, std::pair{files.cert, "--tls_cert"},
        std::pair{files.client_ca, "--tls_client_ca"}}) {
    const std::string text = TextOf(file);
    std::ofstream(file) << "";
    const absl::Status status = certificates.Refresh();
    ASSERT_TRUE(DetailOf(status)) << status;
    EXPECT_EQ(DetailOf(status)->field, field);
    EXPECT_EQ(certificates.Refresh(), status);
    ExpectEqual(certificates.paths(), good);
    std::ofstream(file) << text;
    EXPECT_EQ(certificates.Refresh(), absl::OkStatus());
  }
}

TEST(CertificateCopies, EachRefreshFailsUntilTheFilesAreUsable) {
  Authority authority("ca");
  authority.Issue("server");
  const TlsFiles files = FilesOf(authority);
  CertificateCopies certificates(files);
  const std::string key = TextOf(files.key);
  std::ofstream(files.key) << "";
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(certificates.Refresh().ok());
  std::ofstream(files.key) << key;
  EXPECT_EQ(certificates.Refresh(), absl::OkStatus());
  ExpectEqual(certificates.paths(), files);
}

TEST(CertificateCopies, NoPathIsNoFile) {
  CertificateCopies certificates({});
  EXPECT_EQ(certificates.Refresh(), absl::OkStatus());
  EXPECT_EQ(certificates.paths().cert, "");
}

TEST(CertificateCopies, RefuseAPipe) {
  Authority authority("ca");
  authority.Issue("server");
  TlsFiles files = FilesOf(authority);
  files.key = testing::TempDir() + "/key_pipe";
  ASSERT_EQ(mkfifo(files.key.c_str(), 0600), 0);
  EXPECT_FALSE(CertificateCopies(files).Refresh().ok());
  std::filesystem::remove(files.key);
}

}  // namespace
}  // namespace convgrad
