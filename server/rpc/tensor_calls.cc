#include "server/rpc/tensor_calls.h"

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "backends/kernels/reorder.h"
#include "convgrad/v1/session.pb.h"
#include "proto/codec.h"
#include "server/memory/admission.h"
#include "server/memory/lent_bytes.h"
#include "server/rpc/tensor_places.h"

namespace convgrad {
namespace {

absl::string_view View(const KeptBytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()),
          static_cast<size_t>(bytes.size())};
}

v1::KeptTensorInfo InfoOf(const std::string& name, const KeptTensor& tensor) {
  v1::KeptTensorInfo info;
  info.set_name(name);
  *info.mutable_tensor() = EncodeDescriptor(tensor.descriptor);
  info.mutable_tensor()->mutable_kept()->set_tensor_id(name);
  info.mutable_tensor()->mutable_kept()->set_version(tensor.version);
  info.set_version(tensor.version);
  info.set_kept_bytes(tensor.quota_bytes());
  return info;
}

template <typename Head>
absl::Status CheckCount(const Head& names, absl::string_view field) {
  if (names.size() <= kMaxNamedTensors) return absl::OkStatus();
  return InvalidField(Reason::kOutOfRange, field,
                      absl::StrCat(names.size(), " tensors"),
                      absl::StrCat("at most ", kMaxNamedTensors));
}

}  // namespace

PutTensorsCall::PutTensorsCall(const CallServices& services,
                               grpc::GenericCallbackServerContext* context)
    : MessageCall(services, context, "PutTensors", Role::kTrain, "put") {}

void PutTensorsCall::OnMessage(grpc::ByteBuffer* message) {
  const absl::Time start = absl::Now();
  absl::Status status = Put(message);
  sample_.times.decode.Add(start, absl::Now());
  if (!status.ok()) return End(std::move(status));
  v1::PutTensorsResponse head;
  head.set_version(session().state().number + 1);
  sample_.times.total = absl::Now() - arrival();
  Finish(absl::OkStatus(), head);
}

absl::Status PutTensorsCall::Put(grpc::ByteBuffer* message) {
  v1::PutTensorsRequest head;
  ASSIGN_OR_RETURN(std::vector<PayloadView> payloads, Split(message, &head));
  const std::vector<int64_t> sizes = SizesOf(payloads);
  RETURN_IF_ERROR(session().CheckId("", "session"));
  RETURN_IF_ERROR(session().CheckChange("session"));
  ASSIGN_OR_RETURN(const std::vector<DecodedPut> puts, DecodePuts(head, sizes));
  for (size_t i = 0; i < puts.size(); ++i) {
    const std::string path = absl::StrCat("tensors[", i, "]");
    RETURN_IF_ERROR(CheckName(puts[i].name, path + ".name"));
    if (session().writes()->tensors.contains(puts[i].name)) {
      return InvalidField(Reason::kDuplicate, path + ".name",
                          absl::StrCat("'", puts[i].name, "' twice"),
                          "a name of its own");
    }
    ASSIGN_OR_RETURN(session().writes()->tensors[puts[i].name],
                     Keep(puts[i], &payloads, path));
  }
  return session().Promise();
}

absl::StatusOr<KeptTensor> PutTensorsCall::KeepByDigest(
    const DecodedPut& put, const std::string& path) {
  DigestIndex& digests = *session().table()->digests();
  std::optional<KeptTensor> known =
      digests.Find(session().settings().client, put.digest);
  if (!known) {
    return MakeError(absl::StatusCode::kNotFound,
                     {Reason::kNotFound, path + ".digest",
                      "the digest of bytes that the server doesn't have",
                      "one that HaveTensors knows, or the bytes"});
  }
  digests.CountHit(known->bytes->size());
  return *std::move(known);
}

absl::StatusOr<KeptTensor> PutTensorsCall::Keep(
    const DecodedPut& put, std::vector<PayloadView>* payloads,
    const std::string& path) {
  if (!put.descriptor) return KeepByDigest(put, path);
  std::optional<TensorPlace> region;
  if (put.region) {
    ASSIGN_OR_RETURN(region, PlaceInRegion(*put.region, path + ".tensor",
                                           services().regions));
    sample_.bytes_received += put.region->byte_length;
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<KeptBytes> bytes,
                   session().Take(*put.descriptor, reservation()));
  if (region) {
    if (bytes->size() > 0) {
      std::memcpy(bytes->data(), region->data, bytes->size());
    }
  } else {
    (*payloads)[put.payload_index].CopyTo(bytes->data());
  }
  sample_.bytes_copied += bytes->size();
  const KeptTensor tensor{*put.descriptor, bytes, 0};
  if (put.digest.empty()) return tensor;
  if (DigestOf(*put.descriptor, View(*bytes)) != put.digest) {
    return InvalidField(Reason::kByteCountMismatch, path + ".digest",
                        "another digest than that of the bytes",
                        "SHA-256 as session.proto defines it, or none");
  }
  return session().table()->digests()->Add(session().settings().client,
                                           put.digest, tensor);
}

GetTensorsCall::GetTensorsCall(const CallServices& services,
                               grpc::GenericCallbackServerContext* context)
    : MessageCall(services, context, "GetTensors", Role::kTrain, "get") {}

void GetTensorsCall::OnMessage(grpc::ByteBuffer* message) {
  absl::StatusOr<grpc::ByteBuffer> response = Get(message);
  if (!response.ok()) return End(response.status());
  sample_.times.total = absl::Now() - arrival();
  Answer(*std::move(response));
}

absl::StatusOr<grpc::ByteBuffer> GetTensorsCall::Get(
    grpc::ByteBuffer* message) {
  v1::GetTensorsRequest head;
  RETURN_IF_ERROR(Split(message, &head).status());
  RETURN_IF_ERROR(session().CheckId("", "session"));
  RETURN_IF_ERROR(CheckCount(head.tensors(), "tensors"));
  std::vector<std::pair<KeptTensor, WantedTensor>> found;
  int64_t bytes = 0;
  for (int i = 0; i < head.tensors_size(); ++i) {
    const std::string path = absl::StrCat("tensors[", i, "]");
    ASSIGN_OR_RETURN(KeptTensor kept,
                     session().Find(head.tensors(i).name(), 0, path + ".name"));
    ASSIGN_OR_RETURN(WantedTensor wanted,
                     DecodeWanted(head.tensors(i), kept.descriptor, path));
    bytes += *ByteSize(wanted.descriptor);
    RETURN_IF_ERROR(CheckMessageBytes("response", bytes));
    found.emplace_back(std::move(kept), std::move(wanted));
  }
  v1::GetTensorsResponse response;
  response.set_number(session().state().number);
  std::vector<grpc::Slice> payloads;
  for (const auto& [kept, wanted] : found) {
    const auto index = static_cast<int>(payloads.size());
    v1::KeptTensorInfo* info = response.add_tensors();
    *info = InfoOf(head.tensors(index).name(), kept);
    *info->mutable_tensor() = EncodeTensor(wanted.descriptor, index);
    ASSIGN_OR_RETURN(grpc::Slice payload, BytesOf(kept, wanted));
    payloads.push_back(std::move(payload));
  }
  sample_.bytes_sent = bytes;
  return JoinMessage(response, std::move(payloads));
}

absl::StatusOr<grpc::Slice> GetTensorsCall::BytesOf(
    const KeptTensor& kept, const WantedTensor& wanted) {
  const std::byte* source = kept.bytes->data() + wanted.first_byte;
  const int64_t size = *ByteSize(wanted.descriptor);
  if (wanted.descriptor == wanted.part) {
    return SliceOver(source, size, kept.bytes);
  }
  auto owner = std::make_shared<LentBuffers>();
  owner->memory = services().memory;
  ASSIGN_OR_RETURN(owner->reservation, services().memory->budget.TryReserve(
                                           BufferPool::CapacityFor(size)));
  ASSIGN_OR_RETURN(Buffer buffer, services().memory->pool.Take(size));
  Reorder::Make(wanted.part, wanted.descriptor).Run(source, buffer.data());
  const std::byte* data = buffer.data();
  owner->buffers.push_back(std::move(buffer));
  sample_.bytes_copied += size;
  return SliceOver(data, size, std::move(owner));
}

DropTensorsCall::DropTensorsCall(const CallServices& services,
                                 grpc::GenericCallbackServerContext* context)
    : MessageCall(services, context, "DropTensors", Role::kTrain, "") {}

void DropTensorsCall::OnMessage(grpc::ByteBuffer* message) {
  Finish(Drop(message), v1::DropTensorsResponse());
}

absl::Status DropTensorsCall::Drop(grpc::ByteBuffer* message) {
  v1::DropTensorsRequest head;
  RETURN_IF_ERROR(Split(message, &head).status());
  RETURN_IF_ERROR(session().CheckId("", "session"));
  RETURN_IF_ERROR(session().CheckChange("session"));
  RETURN_IF_ERROR(CheckCount(head.names(), "names"));
  for (int i = 0; i < head.names_size(); ++i) {
    RETURN_IF_ERROR(session()
                        .Find(head.names(i), 0, absl::StrCat("names[", i, "]"))
                        .status());
    session().writes()->tensors[head.names(i)] = std::nullopt;
  }
  if (!head.all()) return absl::OkStatus();
  for (const auto& [name, tensor] : session().state().tensors) {
    session().writes()->tensors[name] = std::nullopt;
  }
  return absl::OkStatus();
}

ListTensorsCall::ListTensorsCall(const CallServices& services,
                                 grpc::GenericCallbackServerContext* context)
    : MessageCall(services, context, "ListTensors", Role::kInfer, "") {}

void ListTensorsCall::OnMessage(grpc::ByteBuffer* message) {
  v1::ListTensorsRequest head;
  absl::Status status = Split(message, &head).status();
  if (status.ok()) status = session().CheckId("", "session");
  if (!status.ok()) return End(std::move(status));
  v1::ListTensorsResponse list;
  list.set_number(session().state().number);
  for (const auto& [name, tensor] : session().state().tensors) {
    *list.add_tensors() = InfoOf(name, tensor);
  }
  Finish(absl::OkStatus(), list);
}

}  // namespace convgrad
