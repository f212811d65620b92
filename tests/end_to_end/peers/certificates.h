// Certificates for one test, made by openssl.
#pragma once

#include <string>

namespace convgrad {

// An authority, in a folder of its own. Aborts where openssl fails.
class Authority {
 public:
  // `name` is its folder's, in the test's temporary folder.
  explicit Authority(const std::string& name);

  // Makes `name`.cert and `name`.key, for 127.0.0.1, to be valid until `days`
  // from now.
  void Issue(const std::string& name, int days = 1);
  // Makes `name`.encrypted of `name`.key.
  void Encrypt(const std::string& name);

  std::string PathOf(const std::string& file) const { return folder_ + file; }
  std::string certificate() const { return PathOf("ca.cert"); }

 private:
  const std::string folder_;
};

}  // namespace convgrad
