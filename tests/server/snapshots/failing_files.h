// `FailingFiles` pass calls on to other files, and fail some of them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/snapshots/file_system.h"

namespace convgrad {

// What happens to a call.
enum class Fault {
  kNone,
  kError,    // EIO; a write has written half of its bytes.
  kNoSpace,  // As kError, but ENOSPC.
  kShort,    // Reads and writes transfer half of the bytes, at least one.
  kFlipped   // A bit of the bytes that are read or written is another one.
};

// Thread-compatible.
class FailingFiles : public FileSystem {
 public:
  // `choose` gets the number of each call, from 0, and its name.
  using Choose = std::function<Fault(int64_t call, const std::string& name)>;

  FailingFiles(FileSystem* files, Choose choose)
      : files_(files), choose_(std::move(choose)) {}

  int64_t calls() const { return calls_; }

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(
      const std::string& path) override {
    if (auto status = Next("create"); !status.ok()) return status;
    auto file = files_->Create(path);
    if (!file.ok()) return file.status();
    return std::make_unique<Writable>(this, *std::move(file));
  }
  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(
      const std::string& path) override {
    if (auto status = Next("open"); !status.ok()) return status;
    auto file = files_->Open(path);
    if (!file.ok()) return file.status();
    return std::make_unique<Readable>(this, *std::move(file));
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    auto status = Next("rename");
    return status.ok() ? files_->Rename(from, to) : status;
  }
  absl::Status Unlink(const std::string& path) override {
    auto status = Next("unlink");
    return status.ok() ? files_->Unlink(path) : status;
  }
  absl::Status CreateFolder(const std::string& path) override {
    auto status = Next("mkdir");
    return status.ok() ? files_->CreateFolder(path) : status;
  }
  absl::Status RemoveFolder(const std::string& path) override {
    auto status = Next("rmdir");
    return status.ok() ? files_->RemoveFolder(path) : status;
  }
  absl::Status SyncFolder(const std::string& path) override {
    auto status = Next("sync folder");
    return status.ok() ? files_->SyncFolder(path) : status;
  }
  absl::StatusOr<std::vector<std::string>> List(
      const std::string& path) override {
    if (auto status = Next("list"); !status.ok()) return status;
    return files_->List(path);
  }
  absl::StatusOr<FolderLock> Lock(const std::string& path) override {
    if (auto status = Next("lock"); !status.ok()) return status;
    return files_->Lock(path);
  }

 private:
  class Writable : public WritableFile {
   public:
    Writable(FailingFiles* owner, std::unique_ptr<WritableFile> file)
        : owner_(owner), file_(std::move(file)) {}
    absl::StatusOr<int64_t> Write(absl::Span<const std::byte> bytes) override {
      const Fault fault = owner_->NextFault("write");
      if (fault == Fault::kNone) return file_->Write(bytes);
      if (fault == Fault::kFlipped) {
        std::vector<std::byte> flipped(bytes.begin(), bytes.end());
        flipped[flipped.size() / 2] ^= std::byte{1};
        return file_->Write(flipped);
      }
      auto written = file_->Write(bytes.first((bytes.size() + 1) / 2));
      if (fault == Fault::kShort) return written;
      return ErrorOf(fault);
    }
    absl::Status Sync() override {
      auto status = owner_->Next("sync");
      return status.ok() ? file_->Sync() : status;
    }

   private:
    FailingFiles* const owner_;
    const std::unique_ptr<WritableFile> file_;
  };
  class Readable : public ReadableFile {
   public:
    Readable(FailingFiles* owner, std::unique_ptr<ReadableFile> file)
        : owner_(owner), file_(std::move(file)) {}
    int64_t size() const override { return file_->size(); }
    absl::StatusOr<int64_t> Read(int64_t offset,
                                 absl::Span<std::byte> bytes) override {
      const Fault fault = owner_->NextFault("read");
      if (fault == Fault::kShort) {
        return file_->Read(offset, bytes.first((bytes.size() + 1) / 2));
      }
      if (fault == Fault::kError || fault == Fault::kNoSpace) {
        return ErrorOf(fault);
      }
      auto read = file_->Read(offset, bytes);
      if (fault == Fault::kFlipped && read.ok() && *read > 0) {
        bytes[*read / 2] ^= std::byte{1};
      }
      return read;
    }

   private:
    FailingFiles* const owner_;
    const std::unique_ptr<ReadableFile> file_;
  };

  static absl::Status ErrorOf(Fault fault) {
    switch (fault) {
      case Fault::kError:
        return absl::DataLossError("EIO");
      case Fault::kNoSpace:
        return absl::ResourceExhaustedError("ENOSPC");
      default:
        return absl::OkStatus();
    }
  }
  Fault NextFault(const std::string& name) { return choose_(calls_++, name); }
  absl::Status Next(const std::string& name) {
    return ErrorOf(NextFault(name));
  }

  FileSystem* const files_;
  const Choose choose_;
  int64_t calls_ = 0;
};

}  // namespace convgrad
