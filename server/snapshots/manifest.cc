#include "server/snapshots/manifest.h"

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "proto/sha256.h"
#include "server/snapshots/image_items.h"

namespace convgrad {
namespace {

void EncodeTensor(const ImageTensor& tensor, snapshots::Tensor* message) {
  const TensorDescriptor& descriptor = tensor.descriptor;
  message->set_name(tensor.name);
  message->set_dtype(std::string(NameOf(descriptor.dtype)));
  message->set_layout(std::string(NameOf(descriptor.layout)));
  for (const int64_t dim : descriptor.dims) message->add_dims(dim);
  message->set_version(tensor.version);
  if (IsRowMajor(descriptor.layout)) return;
  message->set_c0(descriptor.c0);
  if (descriptor.layout == Layout::kFractalZ3D) {
    message->set_groups(descriptor.groups);
  }
}

// Returns bytes of a size, without an address.
ImageBytes Unread(int64_t bytes) {
  return {nullptr, absl::Span<const std::byte>(nullptr, bytes)};
}

absl::StatusOr<ImageTensor> DecodeTensor(const snapshots::Tensor& message) {
  // The name isn't checked yet.
  constexpr absl::string_view kField = "tensor";
  const auto dtype = ParseDataType(message.dtype());
  const auto layout = ParseLayout(message.layout());
  if (!dtype || !layout) {
    return InvalidEnum(kField, dtype ? "an unknown layout" : "an unknown dtype",
                       "a dtype and a layout");
  }
  ImageTensor tensor;
  tensor.name = message.name();
  tensor.version = message.version();
  tensor.descriptor = {*dtype, *layout,
                       Dims(message.dims().begin(), message.dims().end()),
                       message.c0()};
  if (*layout == Layout::kFractalZ3D) {
    tensor.descriptor.groups = message.groups();
  }
  RETURN_IF_ERROR(CheckDescriptor(tensor.descriptor, kField));
  tensor.data = Unread(*ByteSize(tensor.descriptor));
  return tensor;
}

absl::StatusOr<ImageBytes> DecodeSize(absl::string_view field, int64_t bytes) {
  if (bytes >= 0) return Unread(bytes);
  return OutOfRange(field, absl::StrCat(bytes, " bytes"), "at least 0");
}

absl::StatusOr<ManifestPart> DecodePart(const snapshots::Part& part) {
  if (part.sha256().size() == Sha256::kBytes && part.bytes() >= 0) {
    return ManifestPart{part.sha256(), part.bytes()};
  }
  return Malformed("part",
                   absl::StrCat("a digest of ", part.sha256().size(),
                                " bytes, a file of ", part.bytes()),
                   "32, at least 0");
}

// Checks that the items fit into their parts, so that nobody allocates more
// than the files have.
absl::Status CheckParts(const Manifest& manifest) {
  std::vector<int64_t> left;
  for (const ManifestPart& part : manifest.parts) left.push_back(part.bytes);
  const std::vector<ImageItem> items = ItemsOf(manifest.image);
  for (size_t i = 0; i < items.size(); ++i) {
    const size_t part = manifest.part_of[i];
    if (part >= left.size()) {
      return OutOfRange(items[i].name, absl::StrCat("part ", part),
                        absl::StrCat("one of ", left.size()));
    }
    left[part] -= items[i].bytes();
    if (left[part] >= 0) continue;
    return InvalidField(Reason::kByteCountMismatch, items[i].name,
                        absl::StrCat(items[i].bytes(), " bytes"),
                        absl::StrCat("as many as part ", part, " has"));
  }
  return absl::OkStatus();
}

absl::Status DecodeItems(const snapshots::Manifest& message,
                         Manifest* manifest) {
  SessionImage& image = manifest->image;
  for (const snapshots::Tensor& tensor : message.tensors()) {
    ASSIGN_OR_RETURN(image.tensors.emplace_back(), DecodeTensor(tensor));
    manifest->part_of.push_back(tensor.part());
  }
  for (const snapshots::Program& program : message.programs()) {
    ImageProgram& decoded = image.programs.emplace_back();
    decoded.name = program.name();
    ASSIGN_OR_RETURN(decoded.message, DecodeSize("program", program.bytes()));
    manifest->part_of.push_back(program.part());
  }
  for (const snapshots::Reply& reply : message.replies()) {
    ImageReply& decoded = image.replies.emplace_back();
    decoded.number = reply.number();
    decoded.call_id = reply.call_id();
    if (!reply.is_kept()) continue;
    ASSIGN_OR_RETURN(decoded.message, DecodeSize("reply", reply.bytes()));
    manifest->part_of.push_back(reply.part());
  }
  return absl::OkStatus();
}

// Returns the message, if the digest behind it is right.
absl::StatusOr<snapshots::Manifest> ParseFile(absl::string_view file) {
  snapshots::Manifest message;
  if (file.size() < Sha256::kBytes) {
    return InvalidField(Reason::kByteCountMismatch, "manifest",
                        absl::StrCat(file.size(), " bytes"), "at least 32");
  }
  const size_t size = file.size() - Sha256::kBytes;
  if (Sha256Of(file.substr(0, size)) != file.substr(size)) {
    return Malformed("manifest", "another SHA-256 than its last 32 bytes",
                     "the same");
  }
  if (!message.ParseFromArray(file.data(), static_cast<int>(size))) {
    return Malformed("manifest", "no message", "a convgrad.snapshots.Manifest");
  }
  return message;
}

}  // namespace

std::string EncodeManifest(const Manifest& manifest) {
  const SessionImage& image = manifest.image;
  snapshots::Manifest message;
  message.set_format_version(kSnapshotFormatVersion);
  message.set_fencing_number(manifest.fencing_number);
  message.set_generation(manifest.generation);
  *message.mutable_session() = image.head;
  for (const ManifestPart& part : manifest.parts) {
    snapshots::Part& encoded = *message.add_parts();
    encoded.set_sha256(part.sha256);
    encoded.set_bytes(part.bytes);
  }
  auto part = manifest.part_of.begin();
  for (const ImageTensor& tensor : image.tensors) {
    snapshots::Tensor& encoded = *message.add_tensors();
    EncodeTensor(tensor, &encoded);
    encoded.set_part(*part++);
  }
  for (const ImageProgram& program : image.programs) {
    snapshots::Program& encoded = *message.add_programs();
    encoded.set_name(program.name);
    encoded.set_bytes(std::ssize(program.message.bytes));
    encoded.set_part(*part++);
  }
  for (const ImageReply& reply : image.replies) {
    snapshots::Reply& encoded = *message.add_replies();
    encoded.set_number(reply.number);
    encoded.set_call_id(reply.call_id);
    encoded.set_is_kept(reply.message.has_value());
    if (!reply.message) continue;
    encoded.set_bytes(std::ssize(reply.message->bytes));
    encoded.set_part(*part++);
  }
  std::string file = message.SerializeAsString();
  file += Sha256Of(file);
  return file;
}

absl::StatusOr<Manifest> DecodeManifest(absl::string_view file) {
  ASSIGN_OR_RETURN(const snapshots::Manifest message, ParseFile(file));
  if (message.format_version() != kSnapshotFormatVersion) {
    return Unsupported(
        "manifest.format_version", message.format_version(),
        absl::StrCat(kSnapshotFormatVersion, ", as this server writes"));
  }
  Manifest manifest;
  manifest.fencing_number = message.fencing_number();
  manifest.generation = message.generation();
  manifest.image.head = message.session();
  for (const snapshots::Part& part : message.parts()) {
    ASSIGN_OR_RETURN(manifest.parts.emplace_back(), DecodePart(part));
  }
  RETURN_IF_ERROR(DecodeItems(message, &manifest));
  RETURN_IF_ERROR(CheckImage(manifest.image));
  RETURN_IF_ERROR(CheckParts(manifest));
  return manifest;
}

}  // namespace convgrad
