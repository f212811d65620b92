// `Sha256` computes digests of tensors, of sessions' ids and of files.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

struct evp_md_ctx_st;

namespace convgrad {

// Thread-compatible.
class Sha256 {
 public:
  static constexpr size_t kBytes = 32;

  Sha256();
  void Update(absl::Span<const std::byte> bytes);
  void Update(absl::string_view text);
  // Returns the digest, kBytes raw bytes. No other call may follow.
  std::string Finish();

 private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
};

// Returns the digest of `text`. Thread-safe.
std::string Sha256Of(absl::string_view text);

}  // namespace convgrad
