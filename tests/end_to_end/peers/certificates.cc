#include "tests/end_to_end/peers/certificates.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

void Openssl(const std::string& arguments) {
  const std::string command =
      absl::StrCat("openssl ", arguments, " 2>/dev/null");
  if (std::system(command.c_str()) == 0) return;
  std::cerr << "failed: " << command << "\n";
  std::abort();
}

}  // namespace

Authority::Authority(const std::string& name)
    : folder_(absl::StrCat(testing::TempDir(), "/", name, "/")) {
  std::filesystem::create_directories(folder_);
  Openssl(
      absl::StrCat("req -x509 -newkey ed25519 -nodes -days 1 -subj /CN=", name,
                   " -keyout ", PathOf("ca.key"), " -out ", certificate()));
}

void Authority::Issue(const std::string& name, int days) {
  Sign(name, "/CN=" + name, "subjectAltName=IP:127.0.0.1,DNS:" + name, days);
}

void Authority::IssueNameless(const std::string& name) {
  Sign(name, "/O=company", "", 1);
}

void Authority::Sign(const std::string& name, const std::string& subject,
                     const std::string& extensions, int days) {
  const std::string request = PathOf(name + ".request");
  const std::string extension_file = PathOf(name + ".extensions");
  std::ofstream(extension_file) << extensions;
  Openssl(absl::StrCat("req -new -newkey ed25519 -nodes -subj ", subject,
                       " -keyout ", PathOf(name + ".key"), " -out ", request));
  Openssl(absl::StrCat("x509 -req -in ", request, " -CA ", certificate(),
                       " -CAkey ", PathOf("ca.key"), " -CAcreateserial -days ",
                       days, " -extfile ", extension_file, " -out ",
                       PathOf(name + ".cert")));
}

void Authority::Encrypt(const std::string& name) {
  Openssl(absl::StrCat("pkey -aes256 -passout pass:secret -in ",
                       PathOf(name + ".key"), " -out ",
                       PathOf(name + ".encrypted")));
}

}  // namespace convgrad
