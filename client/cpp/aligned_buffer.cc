#include "client/cpp/aligned_buffer.h"

#include <new>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

constexpr std::align_val_t kAlignment{64};

}  // namespace

void AlignedBuffer::Free::operator()(std::byte* data) const {
  ::operator delete(data, kAlignment);
}

absl::StatusOr<AlignedBuffer> AlignedBuffer::Allocate(int64_t size) {
  AlignedBuffer buffer;
  buffer.data_.reset(static_cast<std::byte*>(
      ::operator new(static_cast<size_t>(size), kAlignment, std::nothrow)));
  if (buffer.data_ == nullptr) {
    return LimitExceeded("client memory", absl::StrCat(size, " bytes wanted"),
                         "less");
  }
  buffer.size_ = size;
  return buffer;
}

}  // namespace convgrad
