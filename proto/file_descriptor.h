// `FileDescriptor` owns a file descriptor and closes it.
#pragma once

#include <unistd.h>

#include <utility>

namespace convgrad {

// Move-only; -1 means none. Thread-compatible.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int file) : file_(file) {}
  FileDescriptor(FileDescriptor&& other) noexcept
      : file_(std::exchange(other.file_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(file_, other.file_);
    // Closes this object's old descriptor now, not when `other` ends.
    FileDescriptor old = std::move(other);
    return *this;
  }
  ~FileDescriptor() {
    if (file_ >= 0) close(file_);
  }

  int get() const { return file_; }
  bool ok() const { return file_ >= 0; }
  // Returns the descriptor, which the caller must close.
  int Release() { return std::exchange(file_, -1); }

 private:
  int file_ = -1;
};

}  // namespace convgrad
