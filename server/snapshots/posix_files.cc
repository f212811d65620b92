// The operating system's files.
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "proto/file_descriptor.h"
#include "server/snapshots/file_system.h"

namespace convgrad {
namespace {

// Returns the status of the system call that has just failed.
absl::Status Failed(absl::string_view call, const std::string& path) {
  const int error = errno;
  const absl::Status status =
      absl::ErrnoToStatus(error, absl::StrCat(call, " '", path, "'"));
  // A link where a file was is damage.
  if (error != EIO && error != ELOOP) return status;
  return absl::DataLossError(status.message());
}

// Calls `call` until a signal doesn't interrupt it.
template <typename Call>
auto Retry(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

absl::StatusOr<FileDescriptor> OpenPath(const std::string& path, int flags) {
  constexpr mode_t kMode = 0600;
  FileDescriptor file(Retry([&] {
    return open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                kMode);
  }));
  if (!file.ok()) return Failed("open", path);
  return file;
}

absl::StatusOr<int64_t> RegularSize(const FileDescriptor& file,
                                    const std::string& path) {
  struct stat found = {};
  if (fstat(file.get(), &found) != 0) return Failed("fstat", path);
  if (S_ISREG(found.st_mode)) return int64_t{found.st_size};
  return absl::DataLossError(absl::StrCat("'", path, "' is no regular file"));
}

class PosixWritableFile : public WritableFile {
 public:
  PosixWritableFile(FileDescriptor file, std::string path)
      : file_(std::move(file)), path_(std::move(path)) {}

  absl::StatusOr<int64_t> Write(absl::Span<const std::byte> bytes) override {
    const ssize_t written =
        Retry([&] { return write(file_.get(), bytes.data(), bytes.size()); });
    if (written < 0) return Failed("write", path_);
    return int64_t{written};
  }
  absl::Status Sync() override {
    if (Retry([&] { return fsync(file_.get()); }) != 0) {
      return Failed("fsync", path_);
    }
    // Drops the pages, so that reading back reads the disk, and snapshots take
    // no page cache from others. It is only advice, so errors don't matter.
    posix_fadvise(file_.get(), 0, 0, POSIX_FADV_DONTNEED);
    return absl::OkStatus();
  }

 private:
  const FileDescriptor file_;
  const std::string path_;
};

class PosixReadableFile : public ReadableFile {
 public:
  PosixReadableFile(FileDescriptor file, int64_t size, std::string path)
      : file_(std::move(file)), size_(size), path_(std::move(path)) {}

  int64_t size() const override { return size_; }
  absl::StatusOr<int64_t> Read(int64_t offset,
                               absl::Span<std::byte> bytes) override {
    const ssize_t read = Retry(
        [&] { return pread(file_.get(), bytes.data(), bytes.size(), offset); });
    if (read < 0) return Failed("read", path_);
    return int64_t{read};
  }

 private:
  const FileDescriptor file_;
  const int64_t size_;
  const std::string path_;
};

class PosixFileSystem : public FileSystem {
 public:
  absl::StatusOr<std::unique_ptr<WritableFile>> Create(
      const std::string& path) override {
    // A new file instead of a truncated one: the old one may have failed an
    // fsync.
    if (unlink(path.c_str()) != 0 && errno != ENOENT) {
      return Failed("unlink", path);
    }
    ASSIGN_OR_RETURN(FileDescriptor file,
                     OpenPath(path, O_WRONLY | O_CREAT | O_EXCL));
    return std::make_unique<PosixWritableFile>(std::move(file), path);
  }
  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(
      const std::string& path) override {
    ASSIGN_OR_RETURN(FileDescriptor file, OpenPath(path, O_RDONLY));
    ASSIGN_OR_RETURN(const int64_t size, RegularSize(file, path));
    return std::make_unique<PosixReadableFile>(std::move(file), size, path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
    return Failed("rename", from);
  }
  absl::Status Unlink(const std::string& path) override {
    if (unlink(path.c_str()) == 0) return absl::OkStatus();
    return Failed("unlink", path);
  }
  absl::Status CreateFolder(const std::string& path) override {
    constexpr mode_t kMode = 0700;
    if (mkdir(path.c_str(), kMode) == 0 || errno == EEXIST) {
      return absl::OkStatus();
    }
    return Failed("mkdir", path);
  }
  absl::Status RemoveFolder(const std::string& path) override {
    if (rmdir(path.c_str()) == 0) return absl::OkStatus();
    return Failed("rmdir", path);
  }
  absl::Status SyncFolder(const std::string& path) override {
    // The slash follows a link, which an operator may have made of the folder.
    ASSIGN_OR_RETURN(const FileDescriptor folder,
                     OpenPath(path + "/", O_RDONLY | O_DIRECTORY));
    if (Retry([&] { return fsync(folder.get()); }) == 0) {
      return absl::OkStatus();
    }
    return Failed("fsync", path);
  }
  absl::StatusOr<std::vector<std::string>> List(
      const std::string& path) override {
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(path.c_str()),
                                                     closedir);
    if (folder == nullptr) return Failed("opendir", path);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* const entry = readdir(folder.get())) {
      const absl::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
      errno = 0;
    }
    if (errno != 0) return Failed("readdir", path);
    std::sort(names.begin(), names.end());
    return names;
  }
  absl::StatusOr<FolderLock> Lock(const std::string& path) override {
    ASSIGN_OR_RETURN(FileDescriptor file, OpenPath(path, O_RDWR | O_CREAT));
    if (Retry([&] { return flock(file.get(), LOCK_EX | LOCK_NB); }) == 0) {
      return std::make_shared<const FileDescriptor>(std::move(file));
    }
    if (errno != EWOULDBLOCK) return Failed("flock", path);
    return absl::FailedPreconditionError(
        absl::StrCat("'", path, "' is locked by another process"));
  }
};

}  // namespace

FileSystem* PosixFiles() {
  static PosixFileSystem* const files = new PosixFileSystem;
  return files;
}

}  // namespace convgrad
