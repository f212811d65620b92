// Fuzzes the files that an operator names: certificates, keys and tokens.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/pem_files.h"
#include "server/rpc/transport/token_table.h"
#include "tests/fuzz/require.h"

namespace convgrad::fuzz {
namespace {

// A file in memory.
class MemoryFile {
 public:
  MemoryFile() : file_(memfd_create("fuzz", MFD_CLOEXEC)) {}
  ~MemoryFile() { close(file_); }

  // Writes `text` to the file and returns its path.
  std::string Hold(absl::string_view text) const {
    Require(ftruncate(file_, 0) == 0 &&
                pwrite(file_, text.data(), text.size(), 0) ==
                    static_cast<ssize_t>(text.size()),
            "a file is written");
    return absl::StrCat("/proc/self/fd/", file_);
  }

 private:
  const int file_;
};

// Tries `text` as certificates and, after a zero byte, a key.
void TryPem(absl::string_view text) {
  static const MemoryFile& certificate_file = *new MemoryFile();
  static const MemoryFile& key_file = *new MemoryFile();
  const size_t end = text.find('\0');
  const auto certificates = ReadCertificates(
      {"tls_cert", certificate_file.Hold(text.substr(0, end))});
  if (!certificates.ok()) return RequireRefusal(certificates.status());
  const absl::string_view key = end == text.npos ? text : text.substr(end + 1);
  const auto read = ReadPrivateKey({"tls_key", key_file.Hold(key)}, "tls_cert",
                                   *certificates);
  if (!read.ok()) return RequireRefusal(read.status());
}

void TryTokens(absl::string_view text) {
  const auto table = TokenTable::Parse(text);
  if (!table.ok()) return RequireRefusal(table.status());
  table->Find(text.substr(0, text.find('\n')));
  // Finds the last word of the first line that has three words.
  const size_t end = text.find('\n');
  const absl::string_view line = text.substr(0, end);
  const size_t begin = line.find_last_of(' ');
  if (begin != line.npos) table->Find(line.substr(begin + 1));
}

}  // namespace
}  // namespace convgrad::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const absl::string_view text(reinterpret_cast<const char*>(data) + 1,
                               size - 1);
  if (data[0] % 2 == 0) {
    convgrad::fuzz::TryPem(text);
  } else {
    convgrad::fuzz::TryTokens(text);
  }
  return 0;
}
