#include "server/snapshots/verified_file.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

absl::Status WriteAll(absl::Span<const std::byte> bytes, WritableFile* file) {
  while (!bytes.empty()) {
    ASSIGN_OR_RETURN(const int64_t written,
                     file->Write(bytes.first(
                         std::min<size_t>(bytes.size(), kTransferBytes))));
    bytes.remove_prefix(written);
  }
  return absl::OkStatus();
}

// Writes small pieces together, because a network has hundreds of tensors of a
// few bytes.
absl::Status WritePieces(const Pieces& pieces, WritableFile* file) {
  std::vector<std::byte> gathered;
  for (const auto& piece : pieces) {
    if (gathered.size() + piece.size() > kTransferBytes) {
      RETURN_IF_ERROR(WriteAll(gathered, file));
      gathered.clear();
    }
    if (piece.size() > kTransferBytes) {
      RETURN_IF_ERROR(WriteAll(piece, file));
    } else {
      gathered.insert(gathered.end(), piece.begin(), piece.end());
    }
  }
  return WriteAll(gathered, file);
}

absl::Status WrongSize(const std::string& path, int64_t found,
                       int64_t expected) {
  return MakeError(absl::StatusCode::kDataLoss,
                   {Reason::kByteCountMismatch, path,
                    absl::StrCat("the end at byte ", found),
                    absl::StrCat("at byte ", expected)});
}

}  // namespace

int64_t SizeOf(const Pieces& pieces) {
  int64_t size = 0;
  for (const auto& piece : pieces) size += std::ssize(piece);
  return size;
}

std::string DigestOf(const Pieces& pieces) {
  Sha256 hash;
  for (const auto& piece : pieces) hash.Update(piece);
  return hash.Finish();
}

absl::Status VerifyFile(const std::string& path, int64_t size,
                        absl::string_view sha256, FileSystem* files) {
  ASSIGN_OR_RETURN(HashedReader reader, HashedReader::Open(path, files));
  RETURN_IF_ERROR(reader.CheckSize(size));
  std::vector<std::byte> buffer(std::min(size, kTransferBytes));
  for (int64_t left = size; left > 0;) {
    const auto part = absl::MakeSpan(buffer).first(
        std::min<int64_t>(left, std::ssize(buffer)));
    RETURN_IF_ERROR(reader.Read(part));
    left -= std::ssize(part);
  }
  return reader.Finish(sha256);
}

absl::Status WriteVerifiedFile(const std::string& path, const Pieces& pieces,
                               absl::string_view sha256, FileSystem* files) {
  {
    ASSIGN_OR_RETURN(const auto file, files->Create(path));
    RETURN_IF_ERROR(WritePieces(pieces, file.get()));
    RETURN_IF_ERROR(file->Sync());
  }
  return VerifyFile(path, SizeOf(pieces), sha256, files);
}

HashedReader::HashedReader(std::string path, std::unique_ptr<ReadableFile> file)
    : path_(std::move(path)), file_(std::move(file)) {}

absl::StatusOr<HashedReader> HashedReader::Open(const std::string& path,
                                                FileSystem* files) {
  ASSIGN_OR_RETURN(auto file, files->Open(path));
  return HashedReader(path, std::move(file));
}

absl::Status HashedReader::CheckSize(int64_t bytes) const {
  if (size() == bytes) return absl::OkStatus();
  return WrongSize(path_, size(), bytes);
}

absl::Status HashedReader::Read(absl::Span<std::byte> bytes) {
  while (!bytes.empty()) {
    const auto part =
        bytes.first(std::min<size_t>(bytes.size(), kTransferBytes));
    ASSIGN_OR_RETURN(const int64_t read, file_->Read(offset_, part));
    if (read == 0) {
      return WrongSize(path_, offset_, offset_ + std::ssize(bytes));
    }
    hash_.Update(part.first(read));
    offset_ += read;
    bytes.remove_prefix(read);
  }
  return absl::OkStatus();
}

absl::Status HashedReader::Finish(absl::string_view sha256) {
  RETURN_IF_ERROR(CheckSize(offset_));
  const std::string found = hash_.Finish();
  if (found == sha256) return absl::OkStatus();
  return MakeError(absl::StatusCode::kDataLoss,
                   {Reason::kMalformed, path_,
                    absl::StrCat("SHA-256 ", absl::BytesToHexString(found)),
                    absl::BytesToHexString(sha256)});
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int64_t most,
                                          FileSystem* files) {
  ASSIGN_OR_RETURN(HashedReader reader, HashedReader::Open(path, files));
  if (reader.size() > most) return WrongSize(path, reader.size(), most);
  std::string content(reader.size(), '\0');
  RETURN_IF_ERROR(reader.Read(
      {reinterpret_cast<std::byte*>(content.data()), content.size()}));
  return content;
}

}  // namespace convgrad
