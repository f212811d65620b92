#include "server/snapshots/fence.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "server/snapshots/verified_file.h"

namespace convgrad {
namespace {

// 19 digits and a line feed.
constexpr int64_t kMostBytes = 20;
// The epochs of sessions have the number in their upper half.
constexpr int64_t kMostNumber = int64_t{1} << 30;

// Returns the number in the file, 0 if there is no file.
absl::StatusOr<int64_t> ReadNumber(const std::string& path, FileSystem* files) {
  const auto text = ReadWholeFile(path, kMostBytes, files);
  if (absl::IsNotFound(text.status())) return 0;
  if (!text.ok()) return text.status();
  int64_t number = 0;
  if (!text->empty() && text->back() == '\n' &&
      absl::SimpleAtoi(*text, &number) && number > 0 && number < kMostNumber) {
    return number;
  }
  return MakeError(
      absl::StatusCode::kDataLoss,
      {Reason::kMalformed, path, absl::StrCat(text->size(), " other bytes"),
       "a number from 1 to 1073741823 and a line feed; without the file, "
       "numbers go on after those of the sessions"});
}

}  // namespace

Fence::Fence(std::string path, FileSystem* files, FolderLock lock,
             int64_t number)
    : path_(std::move(path)),
      files_(files),
      lock_(std::move(lock)),
      number_(number) {}

absl::StatusOr<std::unique_ptr<Fence>> Fence::Take(
    const std::string& folder, FileSystem* files,
    const std::function<int64_t()>& known) {
  ASSIGN_OR_RETURN(auto lock, files->Lock(absl::StrCat(folder, "/lock")));
  const std::string path = absl::StrCat(folder, "/fence");
  ASSIGN_OR_RETURN(int64_t last, ReadNumber(path, files));
  if (last == 0 && known) last = known();
  const std::string text = absl::StrCat(last + 1, "\n");
  const std::string beside = absl::StrCat(path, ".tmp");
  RETURN_IF_ERROR(
      WriteVerifiedFile(beside, {AsBytes(text)}, Sha256Of(text), files));
  RETURN_IF_ERROR(files->Rename(beside, path));
  RETURN_IF_ERROR(files->SyncFolder(folder));
  return std::unique_ptr<Fence>(
      new Fence(path, files, std::move(lock), last + 1));
}

absl::Status Fence::Check() const {
  ASSIGN_OR_RETURN(const int64_t found, ReadNumber(path_, files_));
  if (found == number_) return absl::OkStatus();
  return FailedPrecondition(
      Reason::kTakenOver, path_, found == 0 ? "none" : absl::StrCat(found),
      absl::StrCat(number_,
                   ", this server's number: another server uses the folder, "
                   "or the folder was moved"));
}

}  // namespace convgrad
