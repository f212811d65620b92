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
  // Makes `name`.cert and `name`.key of a client that the certificate doesn't
  // name.
  void IssueNameless(const std::string& name);
  // Makes `name`.encrypted from `name`.key.
  void Encrypt(const std::string& name);

  std::string PathOf(const std::string& file) const { return folder_ + file; }
  std::string certificate() const { return PathOf("ca.cert"); }

 private:
  // `subject` is in openssl's form. `extensions` may be empty.
  void Sign(const std::string& name, const std::string& subject,
            const std::string& extensions, int days);

  const std::string folder_;
};

}  // namespace convgrad
