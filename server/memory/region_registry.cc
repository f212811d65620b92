#include "server/memory/region_registry.h"

#include <sys/random.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "proto/region_handshake.h"

namespace convgrad {
namespace {

absl::StatusOr<std::string> RandomId() {
  std::string id(kRegionIdBytes, '\0');
  // The kernel returns so few bytes at once, without interruption.
  if (getrandom(id.data(), id.size(), 0) == static_cast<ssize_t>(id.size())) {
    return id;
  }
  return MakeError(absl::StatusCode::kInternal,
                   {Reason::kInternal, "region", "no random bytes", "some"});
}

}  // namespace

RegionRegistry::RegionRegistry(MemoryBudget* budget, int64_t max_bytes)
    : budget_(budget), max_bytes_(max_bytes) {}

absl::StatusOr<Reservation> RegionRegistry::Reserve(int64_t bytes) {
  MutexLock lock(&mutex_);
  if (bytes > max_bytes_ - bytes_) {
    return Busy(
        "region.byte_length",
        absl::StrCat(bytes, " bytes beside ", bytes_, " of other regions"),
        absl::StrCat("at most ", max_bytes_,
                     " together, the server's --max_region_bytes"));
  }
  ASSIGN_OR_RETURN(Reservation reservation, budget_->TryReserve(bytes));
  bytes_ += bytes;
  return reservation;
}

absl::StatusOr<RegionRegistry::Registration> RegionRegistry::Create(
    int64_t byte_length) {
  if (byte_length < 1) {
    return OutOfRange("region.byte_length", byte_length, "at least 1");
  }
  // Compares first, because rounding up may overflow.
  if (byte_length > max_bytes_ ||
      Region::ReservedBytes(byte_length) > max_bytes_) {
    return LimitExceeded("region.byte_length",
                         absl::StrCat(byte_length, " bytes"),
                         absl::StrCat("at most ", max_bytes_,
                                      ", the server's --max_region_bytes"));
  }
  ASSIGN_OR_RETURN(std::string id, RandomId());
  const int64_t bytes = Region::ReservedBytes(byte_length);
  ASSIGN_OR_RETURN(Reservation reservation, Reserve(bytes));
  // Makes the region without the lock, because filling memory with zeros takes
  // time.
  absl::StatusOr<NewRegion> made =
      Region::Create(byte_length, std::move(reservation));
  MutexLock lock(&mutex_);
  if (!made.ok()) {
    bytes_ -= bytes;
    return made.status();
  }
  regions_.emplace(id, std::move(made->region));
  return Registration{std::move(id), std::move(made->file)};
}

void RegionRegistry::Remove(const std::string& id) {
  // Declared before the lock, so that the region is unmapped after its release.
  std::shared_ptr<const Region> removed;
  MutexLock lock(&mutex_);
  const auto found = regions_.find(id);
  if (found == regions_.end()) return;
  removed = std::move(found->second);
  regions_.erase(found);
  bytes_ -= Region::ReservedBytes(removed->size());
}

std::shared_ptr<const Region> RegionRegistry::Find(
    const std::string& id) const {
  MutexLock lock(&mutex_);
  const auto found = regions_.find(id);
  return found == regions_.end() ? nullptr : found->second;
}

int64_t RegionRegistry::regions() const {
  MutexLock lock(&mutex_);
  return std::ssize(regions_);
}

int64_t RegionRegistry::region_bytes() const {
  MutexLock lock(&mutex_);
  return bytes_;
}

}  // namespace convgrad
