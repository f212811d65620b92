// These functions write files and prove that the disk has them, and read files
// with their digests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/sha256.h"
#include "server/snapshots/file_system.h"

namespace convgrad {

// The bytes of one read or write of a large file.
inline constexpr int64_t kTransferBytes = int64_t{8} << 20;

// The parts of a file's content, in their order.
using Pieces = std::vector<absl::Span<const std::byte>>;

inline absl::Span<const std::byte> AsBytes(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// Returns the bytes of the pieces.
int64_t SizeOf(const Pieces& pieces);

// Returns the SHA-256 of the pieces.
std::string DigestOf(const Pieces& pieces);

// Writes a new file of mode 0600 at `path`, syncs it, reads it back, and
// compares it with `sha256`, the digest of the pieces. The folder isn't synced.
// Errors: those of FileSystem; kDataLoss if the file reads differently. The
// file may exist nevertheless; the caller removes it.
absl::Status WriteVerifiedFile(const std::string& path, const Pieces& pieces,
                               absl::string_view sha256, FileSystem* files);

// Reads a file to its end, and checks its size and its SHA-256.
// Errors: those of FileSystem; kDataLoss.
absl::Status VerifyFile(const std::string& path, int64_t size,
                        absl::string_view sha256, FileSystem* files);

// `HashedReader` reads a file from its begin to its end and computes its
// digest. Thread-compatible.
class HashedReader {
 public:
  // Errors: those of FileSystem.
  static absl::StatusOr<HashedReader> Open(const std::string& path,
                                           FileSystem* files);

  int64_t size() const { return file_->size(); }
  // Checks that the file has `bytes`.
  // Errors: kDataLoss.
  absl::Status CheckSize(int64_t bytes) const;
  // Fills `bytes`.
  // Errors: those of FileSystem; kDataLoss if the file ends before.
  absl::Status Read(absl::Span<std::byte> bytes);
  // Checks that the file has been read to its end and has this SHA-256. No
  // other call may follow.
  // Errors: kDataLoss.
  absl::Status Finish(absl::string_view sha256);

 private:
  HashedReader(std::string path, std::unique_ptr<ReadableFile> file);

  std::string path_;
  std::unique_ptr<ReadableFile> file_;
  int64_t offset_ = 0;
  Sha256 hash_;
};

// Returns the content of a small file.
// Errors: those of FileSystem; kDataLoss if it has more than `most` bytes.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int64_t most,
                                          FileSystem* files);

}  // namespace convgrad
