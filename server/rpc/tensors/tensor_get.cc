#include "server/rpc/tensors/tensor_get.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "backends/kernels/copies/reorder.h"
#include "proto/codec/codec.h"
#include "server/memory/admission.h"

namespace convgrad {

namespace {

int64_t GroupsOf(const TensorDescriptor& tensor) {
  return tensor.layout == Layout::kFractalZ3D ? tensor.groups : 0;
}

}  // namespace

v1::KeptTensorInfo InfoOf(const std::string& name, const KeptTensor& tensor) {
  v1::KeptTensorInfo info;
  info.set_name(name);
  *info.mutable_tensor() = EncodeDescriptor(tensor.descriptor);
  info.mutable_tensor()->mutable_kept()->set_tensor_id(name);
  info.mutable_tensor()->mutable_kept()->set_version(tensor.version);
  info.set_version(tensor.version);
  info.set_kept_bytes(tensor.quota_bytes());
  info.set_groups(GroupsOf(tensor.descriptor));
  return info;
}

absl::StatusOr<TensorGet> TensorGet::Find(const v1::GetTensorsRequest& request,
                                          const CallSession& session) {
  RETURN_IF_ERROR(CheckCount(request.tensors_size(), "tensors"));
  TensorGet get;
  get.number_ = session.state().number;
  for (int i = 0; i < request.tensors_size(); ++i) {
    const v1::NamedGet& named = request.tensors(i);
    const std::string path = absl::StrCat("tensors[", i, "]");
    ASSIGN_OR_RETURN(KeptTensor kept,
                     session.Find(named.name(), 0, path + ".name"));
    ASSIGN_OR_RETURN(WantedTensor wanted,
                     DecodeWanted(named, kept.descriptor, path));
    get.bytes_ = std::min(kUncountableBytes,
                          get.bytes_ + CountableBytes(wanted.descriptor));
    get.found_.push_back({named.name(), std::move(kept), std::move(wanted)});
  }
  return get;
}

v1::GetTensorsResponse TensorGet::Describe() const {
  v1::GetTensorsResponse response;
  response.set_number(number_);
  for (const Found& found : found_) {
    v1::KeptTensorInfo* info = response.add_tensors();
    *info = InfoOf(found.name, found.kept);
    *info->mutable_tensor() = EncodeDescriptor(found.wanted.descriptor);
    info->set_groups(GroupsOf(found.wanted.descriptor));
  }
  return response;
}

int64_t TensorGet::CopyCapacity() const {
  int64_t bytes = 0;
  for (size_t i = 0; i < count(); ++i) {
    if (found_[i].is_copied()) bytes = AddCapacity(bytes, CopiedBytes(i));
  }
  return bytes;
}

int64_t TensorGet::CopiedBytes(size_t i) const {
  return found_[i].is_copied() ? CountableBytes(descriptor(i)) : 0;
}

absl::StatusOr<SharedBytes> TensorGet::BytesOf(
    size_t i, const std::shared_ptr<CallMemory>& memory, Reservation* paid,
    int64_t* copied_bytes) const {
  const Found& found = found_[i];
  const std::byte* source = found.kept.bytes->data() + found.wanted.first_byte;
  const int64_t size = *ByteSize(found.wanted.descriptor);
  if (!found.is_copied()) return SharedBytes{source, size, found.kept.bytes};
  auto owner = std::make_shared<ReservedBuffers>();
  owner->memory = memory;
  owner->reservation = paid->Split(BufferPool::CapacityFor(size));
  ASSIGN_OR_RETURN(Buffer buffer, memory->pool.Take(size));
  Reorder::Make(found.wanted.source, found.wanted.descriptor)
      .Run(source, buffer.data());
  const std::byte* data = buffer.data();
  owner->buffers.push_back(std::move(buffer));
  *copied_bytes += size;
  return SharedBytes{data, size, std::move(owner)};
}

}  // namespace convgrad
