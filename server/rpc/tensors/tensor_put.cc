#include "server/rpc/tensors/tensor_put.h"

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "proto/tensor_digest.h"
#include "server/memory/admission.h"

namespace convgrad {
namespace {

std::string PathOf(size_t i) { return absl::StrCat("tensors[", i, "]"); }

// Copies the bytes of a tensor from `source`, its place in the request.
void Copy(const TensorPlace& source, const KeptBytes& to) {
  const auto size = static_cast<size_t>(to.size());
  if (size == 0) return;
  if (source.message != nullptr) {
    source.message->CopyRange(0, absl::MakeSpan(to.data(), size));
  } else if (source.in_memory()) {
    std::memcpy(to.data(), source.data, size);
  }
}

absl::string_view View(const KeptBytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()),
          static_cast<size_t>(bytes.size())};
}

}  // namespace

int64_t TensorPut::CapacityFor(const std::vector<DecodedPut>& puts) {
  int64_t bytes = 0;
  for (const DecodedPut& put : puts) {
    if (!put.descriptor) continue;
    bytes = AddCapacity(bytes, CountableBytes(*put.descriptor));
  }
  return bytes;
}

absl::Status TensorPut::Begin(std::vector<DecodedPut> puts, Reservation* paid) {
  puts_ = std::move(puts);
  sources_.resize(puts_.size());
  auto& writes = session_->writes()->tensors;
  for (size_t i = 0; i < puts_.size(); ++i) {
    const std::string& name = puts_[i].name;
    RETURN_IF_ERROR(CheckName(name, PathOf(i) + ".name"));
    if (writes.contains(name)) {
      return InvalidField(Reason::kDuplicate, PathOf(i) + ".name",
                          absl::StrCat("'", name, "' twice"),
                          "a name of its own");
    }
    ASSIGN_OR_RETURN(sources_[i],
                     resolver_.Place(puts_[i].source, PathOf(i) + ".tensor"));
    ASSIGN_OR_RETURN(writes[name], Place(puts_[i], PathOf(i), paid));
  }
  return session_->Promise();
}

absl::StatusOr<KeptTensor> TensorPut::Place(const DecodedPut& put,
                                            const std::string& path,
                                            Reservation* paid) {
  if (!put.descriptor) return FindByDigest(put, path);
  if (put.source.region) {
    sample_->bytes_received += put.source.region->byte_length;
  }
  ASSIGN_OR_RETURN(
      const std::shared_ptr<KeptBytes> bytes,
      session_->table()->memory()->Take(*ByteSize(*put.descriptor), paid));
  sample_->bytes_copied += bytes->size();
  return KeptTensor{*put.descriptor, bytes, 0};
}

absl::StatusOr<KeptTensor> TensorPut::FindByDigest(const DecodedPut& put,
                                                   const std::string& path) {
  DigestIndex& digests = *session_->table()->digests();
  std::optional<KeptTensor> known =
      digests.Find(session_->settings().client, put.digest);
  if (!known) {
    return NotFound(path + ".digest",
                    "the digest of bytes that the server doesn't have",
                    "one that HaveTensors knows, or the bytes");
  }
  digests.CountHit(known->bytes->size());
  return *std::move(known);
}

std::byte* TensorPut::data(size_t i) const {
  return session_->writes()->tensors.at(puts_[i].name)->bytes->data();
}

absl::Status TensorPut::Finish() {
  for (size_t i = 0; i < puts_.size(); ++i) {
    const DecodedPut& put = puts_[i];
    if (!put.descriptor) continue;
    KeptTensor& tensor = *session_->writes()->tensors.at(put.name);
    Copy(sources_[i], *tensor.bytes);
    if (put.digest.empty()) continue;
    if (DigestOf(*put.descriptor, View(*tensor.bytes)) != put.digest) {
      return InvalidField(Reason::kByteCountMismatch, PathOf(i) + ".digest",
                          "another digest than that of the bytes",
                          "SHA-256 as session.proto defines it, or none");
    }
    tensor = session_->table()->digests()->Add(session_->settings().client,
                                               put.digest, tensor);
  }
  return absl::OkStatus();
}

}  // namespace convgrad
