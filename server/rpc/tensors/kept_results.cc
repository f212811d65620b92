#include "server/rpc/tensors/kept_results.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

// Owns the memory of a sum: the written bytes and the bytes of the addend.
struct SumBytes {
  std::shared_ptr<const KeptBytes> sum;
  std::shared_ptr<const KeptBytes> addend;
};

}  // namespace

absl::StatusOr<TensorPlace> KeptResults::Write(
    const std::string& name, const TensorDescriptor& descriptor) {
  ASSIGN_OR_RETURN(std::shared_ptr<KeptBytes> bytes,
                   session_.Take(descriptor, &paid_));
  TensorPlace place;
  place.data = bytes->data();
  place.owner = bytes;
  place.is_kept = true;
  session_.writes()->tensors[name] =
      KeptTensor{descriptor, std::move(bytes), 0};
  return place;
}

absl::StatusOr<TensorPlace> KeptResults::Add(const std::string& name,
                                             const TensorDescriptor& descriptor,
                                             const std::string& path) {
  const auto& tensors = session_.state().tensors;
  const auto old = tensors.find(name);
  if (old != tensors.end() && old->second.descriptor != descriptor) {
    return InvalidField(
        Reason::kShapeMismatch, path,
        absl::StrCat("'", name, "', ", ToString(old->second.descriptor)),
        absl::StrCat("a sum like the result, ", ToString(descriptor)));
  }
  ASSIGN_OR_RETURN(TensorPlace place, Write(name, descriptor));
  if (old == tensors.end()) return place;
  place.addend = reinterpret_cast<const float*>(old->second.bytes->data());
  place.owner = std::make_shared<SumBytes>(
      SumBytes{session_.writes()->tensors[name]->bytes, old->second.bytes});
  return place;
}

}  // namespace convgrad
