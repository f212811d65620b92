#include "proto/tensor_digest.h"

#include "absl/strings/str_cat.h"
#include "proto/sha256.h"

namespace convgrad {

std::string DigestOf(const TensorDescriptor& descriptor,
                     absl::string_view bytes) {
  std::string head = ToString(descriptor);
  if (descriptor.layout == Layout::kFractalZ3D && descriptor.groups > 1) {
    absl::StrAppend(&head, " g", descriptor.groups);
  }
  head += '\n';
  Sha256 hash;
  hash.Update(head);
  hash.Update(bytes);
  return hash.Finish();
}

}  // namespace convgrad
