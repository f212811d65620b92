#include "server/memory/region.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/checked_math.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

int64_t PageBytes() {
  static const int64_t kBytes = sysconf(_SC_PAGESIZE);
  return kBytes;
}

absl::Status SystemError(absl::string_view call, int64_t byte_length) {
  return Busy("server.memory", absl::StrCat(call, ": ", std::strerror(errno)),
              absl::StrCat(byte_length, " bytes from the system"));
}

// Returns a file in memory whose pages are all allocated and whose size is
// fixed, because otherwise an access could end in SIGBUS.
absl::StatusOr<FileDescriptor> MakeSealedFile(int64_t byte_length) {
  FileDescriptor file(
      memfd_create("convgrad-region", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.ok()) return SystemError("memfd_create", byte_length);
  int result;
  do {
    result = fallocate(file.get(), 0, 0, byte_length);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return SystemError("fallocate", byte_length);
  if (fcntl(file.get(), F_ADD_SEALS,
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
    return SystemError("F_ADD_SEALS", byte_length);
  }
  return file;
}

}  // namespace

int64_t Region::ReservedBytes(int64_t byte_length) {
  return CeilDiv(byte_length, PageBytes()) * PageBytes();
}

absl::StatusOr<NewRegion> Region::Create(int64_t byte_length,
                                         Reservation reservation) {
  ASSIGN_OR_RETURN(FileDescriptor file, MakeSealedFile(byte_length));
  // Maps one more page behind the region, because vector code may read a little
  // beyond a tensor and the client chooses where a tensor ends.
  const int64_t pages = ReservedBytes(byte_length);
  void* place = mmap(nullptr, pages + PageBytes(), PROT_READ,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) return SystemError("mmap", byte_length);
  void* mapping = mmap(place, byte_length, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_FIXED | MAP_POPULATE, file.get(), 0);
  if (mapping == MAP_FAILED) {
    absl::Status status = SystemError("mmap", byte_length);
    munmap(place, pages + PageBytes());
    return status;
  }
  std::shared_ptr<const Region> region(new Region(
      static_cast<std::byte*>(mapping), byte_length, std::move(reservation)));
  return NewRegion{std::move(region), std::move(file)};
}

Region::Region(std::byte* data, int64_t size, Reservation reservation)
    : data_(data), size_(size), reservation_(std::move(reservation)) {}

Region::~Region() {
  const int64_t pages = ReservedBytes(size_);
  madvise(data_, pages, MADV_REMOVE);
  munmap(data_, pages + PageBytes());
}

}  // namespace convgrad
