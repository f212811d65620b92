#include "tests/server/snapshots/memory_files.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace convgrad {
namespace {

using Kind = FileOperation::Kind;

constexpr size_t kBlock = 4096;

// "a/b/" and "a//b" aren't used but for a folder with a slash at its end.
std::string Clean(absl::string_view path) {
  return std::string(absl::StripSuffix(path, "/"));
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

absl::Status Missing(const std::string& path) {
  return absl::NotFoundError("no '" + path + "'");
}

void WriteAt(size_t offset, absl::string_view bytes, std::string* content) {
  content->resize(std::max(content->size(), offset + bytes.size()));
  content->replace(offset, bytes.size(), bytes.data(), bytes.size());
}

class MemoryReadableFile : public ReadableFile {
 public:
  explicit MemoryReadableFile(std::shared_ptr<const std::string> content)
      : content_(std::move(content)) {}
  int64_t size() const override {
    return static_cast<int64_t>(content_->size());
  }
  absl::StatusOr<int64_t> Read(int64_t offset,
                               absl::Span<std::byte> bytes) override {
    const absl::string_view rest = absl::string_view(*content_).substr(
        std::min<size_t>(offset, content_->size()));
    const size_t read = std::min(rest.size(), bytes.size());
    std::copy_n(reinterpret_cast<const std::byte*>(rest.data()), read,
                bytes.data());
    return static_cast<int64_t>(read);
  }

 private:
  const std::shared_ptr<const std::string> content_;
};

// The disk, while operations are replayed.
class Disk {
 public:
  void Replay(const FileOperation& operation) {
    switch (operation.kind) {
      case Kind::kWrite:
        unwritten_[operation.file].push_back(operation);
        break;
      case Kind::kSync:
        for (const FileOperation& write : unwritten_[operation.file]) {
          WriteAt(write.offset, write.bytes, &contents_[operation.file]);
        }
        unwritten_.erase(operation.file);
        break;
      case Kind::kSyncFolder:
        for (const FileOperation& change : unnamed_[operation.path]) {
          Change(change);
        }
        unnamed_.erase(operation.path);
        break;
      default:
        if (FolderOf(operation.path).empty()) return Change(operation);
        unnamed_[FolderOf(operation.path)].push_back(operation);
    }
  }

  // Applies some of what no fsync covers.
  void Crash(const std::function<bool()>& keeps) {
    for (const auto& [file, writes] : unwritten_) {
      for (const FileOperation& write : writes) {
        for (size_t begin = 0; begin < write.bytes.size();) {
          const size_t offset = write.offset + begin;
          const size_t size =
              std::min(kBlock - offset % kBlock, write.bytes.size() - begin);
          if (keeps()) {
            WriteAt(offset, write.bytes.substr(begin, size), &contents_[file]);
          }
          begin += size;
        }
      }
    }
    for (const auto& [folder, changes] : unnamed_) {
      for (const FileOperation& change : changes) {
        if (keeps()) Change(change);
      }
    }
  }

  bool HasFolder(const std::string& path) const {
    return path.find('/') == std::string::npos
               ? folders_.count(path) != 0
               : folders_.count(path) != 0 && HasFolder(FolderOf(path));
  }
  const std::set<std::string>& folders() const { return folders_; }
  const std::map<std::string, size_t>& names() const { return names_; }
  std::string content(size_t file) { return contents_[file]; }

 private:
  void Change(const FileOperation& change) {
    switch (change.kind) {
      case Kind::kCreate:
        names_[change.path] = change.file;
        break;
      case Kind::kRename:
        names_.erase(change.path);
        names_[change.to] = change.file;
        break;
      case Kind::kUnlink:
        names_.erase(change.path);
        break;
      case Kind::kCreateFolder:
        folders_.insert(change.path);
        break;
      case Kind::kRemoveFolder:
        folders_.erase(change.path);
        break;
      default:
        break;
    }
  }

  std::map<size_t, std::string> contents_;
  std::map<size_t, std::vector<FileOperation>> unwritten_;
  // By folder: changes of its names.
  std::map<std::string, std::vector<FileOperation>> unnamed_;
  std::map<std::string, size_t> names_;
  std::set<std::string> folders_;
};

}  // namespace

class MemoryWritableFile : public WritableFile {
 public:
  MemoryWritableFile(MemoryFiles* owner, size_t file)
      : owner_(owner), file_(file) {}
  absl::StatusOr<int64_t> Write(absl::Span<const std::byte> bytes) override {
    std::string& content = *owner_->files_[file_];
    const std::string text(reinterpret_cast<const char*>(bytes.data()),
                           bytes.size());
    owner_->operations_.push_back(
        {Kind::kWrite, "", file_, "", content.size(), text});
    content += text;
    return static_cast<int64_t>(bytes.size());
  }
  absl::Status Sync() override {
    owner_->operations_.push_back({Kind::kSync, "", file_});
    return absl::OkStatus();
  }

 private:
  MemoryFiles* const owner_;
  const size_t file_;
};

std::unique_ptr<MemoryFiles> MemoryFiles::AfterCrash(
    const std::vector<FileOperation>& operations,
    const std::function<bool()>& keeps) {
  Disk disk;
  for (const FileOperation& operation : operations) disk.Replay(operation);
  disk.Crash(keeps);
  auto files = std::make_unique<MemoryFiles>();
  for (const std::string& folder : disk.folders()) {
    if (disk.HasFolder(folder)) files->folders_.insert(folder);
  }
  for (const auto& [path, file] : disk.names()) {
    if (files->folders_.count(FolderOf(path)) != 0) {
      files->Put(path, disk.content(file));
    }
  }
  return files;
}

std::map<std::string, std::string> MemoryFiles::Contents() const {
  std::map<std::string, std::string> contents;
  for (const auto& [path, file] : names_) contents[path] = *files_[file];
  return contents;
}

void MemoryFiles::Put(const std::string& path, const std::string& content) {
  names_[path] = files_.size();
  files_.push_back(std::make_shared<std::string>(content));
}

absl::StatusOr<std::unique_ptr<WritableFile>> MemoryFiles::Create(
    const std::string& path) {
  if (folders_.count(FolderOf(path)) == 0) return Missing(FolderOf(path));
  operations_.push_back({Kind::kCreate, path, files_.size()});
  Put(path, "");
  return std::make_unique<MemoryWritableFile>(this, files_.size() - 1);
}

absl::StatusOr<std::unique_ptr<ReadableFile>> MemoryFiles::Open(
    const std::string& path) {
  const auto found = names_.find(path);
  if (found == names_.end()) return Missing(path);
  return std::make_unique<MemoryReadableFile>(files_[found->second]);
}

absl::Status MemoryFiles::Rename(const std::string& from,
                                 const std::string& to) {
  const auto found = names_.find(from);
  if (found == names_.end()) return Missing(from);
  const size_t file = found->second;
  operations_.push_back({Kind::kRename, from, file, to});
  names_.erase(found);
  names_[to] = file;
  return absl::OkStatus();
}

absl::Status MemoryFiles::Unlink(const std::string& path) {
  if (names_.erase(path) == 0) return Missing(path);
  operations_.push_back({Kind::kUnlink, path});
  return absl::OkStatus();
}

absl::Status MemoryFiles::CreateFolder(const std::string& path) {
  if (folders_.insert(Clean(path)).second) {
    operations_.push_back({Kind::kCreateFolder, Clean(path)});
  }
  return absl::OkStatus();
}

absl::Status MemoryFiles::RemoveFolder(const std::string& path) {
  const std::string folder = Clean(path);
  const auto names = List(folder);
  if (!names.ok()) return names.status();
  if (!names->empty()) return absl::FailedPreconditionError("not empty");
  folders_.erase(folder);
  operations_.push_back({Kind::kRemoveFolder, folder});
  return absl::OkStatus();
}

absl::Status MemoryFiles::SyncFolder(const std::string& path) {
  if (folders_.count(Clean(path)) == 0 && path != ".") return Missing(path);
  operations_.push_back({Kind::kSyncFolder, Clean(path)});
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> MemoryFiles::List(
    const std::string& path) {
  const std::string folder = Clean(path);
  if (folders_.count(folder) == 0) return Missing(path);
  std::vector<std::string> names;
  for (const auto& [name, file] : names_) {
    if (FolderOf(name) == folder)
      names.push_back(name.substr(folder.size() + 1));
  }
  for (const std::string& name : folders_) {
    if (name != folder && FolderOf(name) == folder) {
      names.push_back(name.substr(folder.size() + 1));
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<FolderLock> MemoryFiles::Lock(const std::string& path) {
  if (locks_ && locked_->count(path) != 0) {
    return absl::FailedPreconditionError("locked");
  }
  locked_->insert(path);
  return FolderLock(locked_.get(), [locked = locked_, path](const void*) {
    locked->erase(path);
  });
}

}  // namespace convgrad
