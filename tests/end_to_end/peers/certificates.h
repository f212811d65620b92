// `Authority` makes certificates for one test with openssl.
#pragma once

#include <string>

namespace convgrad {

// A certificate authority in its own folder. Aborts if openssl fails.
class Authority {
 public:
  // `name` is the name of its folder in the test's temporary folder.
  explicit Authority(const std::string& name);

  // Makes `name`.cert and `name`.key for 127.0.0.1, valid until `days` from
  // now.
  void Issue(const std::string& name, int days = 1);
  // Makes `name`.encrypted from `name`.key.
  void Encrypt(const std::string& name);

  std::string PathOf(const std::string& file) const { return folder_ + file; }
  std::string certificate() const { return PathOf("ca.cert"); }

 private:
  const std::string folder_;
};

}  // namespace convgrad
