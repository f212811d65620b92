// An owned file descriptor.
#pragma once

#include <unistd.h>

#include <utility>

namespace convgrad {

// Closed when destroyed. Move-only; -1 is none. Thread-compatible.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int file) : file_(file) {}
  FileDescriptor(FileDescriptor&& other) noexcept
      : file_(std::exchange(other.file_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(file_, other.file_);
    // What this one held is closed now, not when `other` ends.
    FileDescriptor old = std::move(other);
    return *this;
  }
  ~FileDescriptor() {
    if (file_ >= 0) close(file_);
  }

  int get() const { return file_; }
  bool ok() const { return file_ >= 0; }
  // Returns it, the caller's to close from now on.
  int Release() { return std::exchange(file_, -1); }

 private:
  int file_ = -1;
};

}  // namespace convgrad
