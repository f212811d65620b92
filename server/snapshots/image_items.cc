#include "server/snapshots/image_items.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "server/snapshots/session_files.h"

namespace convgrad {
namespace {

constexpr size_t kIdBytes = 16;
constexpr size_t kMostTrainerState = size_t{64} << 10;
constexpr size_t kMostName = 255;
constexpr int kMostFacts = 64;
constexpr size_t kMostFactBytes = 1024;
constexpr size_t kMostRank = 8;
// The rank that backends/core's blocked layouts have at most.
constexpr size_t kMostBlockedRank = 5;
// safetensors gives this name a meaning of its own.
constexpr absl::string_view kReservedName = "__metadata__";

bool IsPrintable(absl::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return absl::ascii_isprint(c); });
}

// Checks a count that the server increases.
absl::Status CheckCount(absl::string_view field, int64_t value) {
  if (value >= 0 && value < kMostCount) return absl::OkStatus();
  return OutOfRange(field, value, absl::StrCat("0 to ", kMostCount - 1));
}

// Checks a name, and adds it to those of its kind.
absl::Status CheckName(absl::string_view kind, const std::string& name,
                       std::set<absl::string_view>* names) {
  const std::string field = absl::StrCat(
      kind, " '", absl::CHexEscape(name.substr(0, kMostName)), "'");
  if (name.empty() || name.size() > kMostName || !IsPrintable(name) ||
      name.find_first_of("/\\") != std::string::npos) {
    return Malformed(field, "another name",
                     "1 to 255 printable ASCII characters without / and \\");
  }
  if (names->insert(name).second) return absl::OkStatus();
  return InvalidField(Reason::kDuplicate, field, "the name twice", "once");
}

// Returns whether ByteSize accepts the dims.
bool HasValidDims(const TensorDescriptor& d) {
  const size_t rank = d.dims.size();
  const bool blocked = !IsRowMajor(d.layout);
  for (size_t i = 0; i < rank; ++i) {
    if (d.dims[i] < (blocked && i > 0 ? 1 : 0)) return false;
  }
  if (!blocked) return true;
  if (rank < 2 || rank > kMostBlockedRank || (d.c0 != 8 && d.c0 != 16)) {
    return false;
  }
  return d.layout != Layout::kFractalZ3D ||
         (d.groups >= 1 && d.dims[0] >= d.groups && d.dims[0] % d.groups == 0);
}

absl::Status CheckTensor(const ImageTensor& tensor) {
  const std::string field = absl::StrCat("tensor '", tensor.name, "'");
  RETURN_IF_ERROR(CheckCount(absl::StrCat(field, " version"), tensor.version));
  RETURN_IF_ERROR(CheckDescriptor(tensor.descriptor, field));
  const int64_t bytes = *ByteSize(tensor.descriptor);
  const auto found = std::ssize(tensor.data.bytes);
  if (found == bytes) return absl::OkStatus();
  return InvalidField(Reason::kByteCountMismatch, field,
                      absl::StrCat(found, " bytes"),
                      absl::StrCat(bytes, " of ", ToString(tensor.descriptor)));
}

absl::Status CheckFacts(const snapshots::Session& head) {
  if (head.computed_by_size() > kMostFacts) {
    return OutOfRange("computed_by facts", head.computed_by_size(),
                      "at most 64");
  }
  for (const snapshots::Fact& fact : head.computed_by()) {
    const std::string both = fact.name() + fact.text();
    if (both.size() <= kMostFactBytes && IsPrintable(both)) continue;
    return Malformed("computed_by",
                     absl::StrCat("a fact of ", both.size(), " bytes"),
                     "at most 1024 bytes of printable ASCII");
  }
  return absl::OkStatus();
}

absl::Status CheckHead(const snapshots::Session& head) {
  if (head.id().size() != kIdBytes) {
    return OutOfRange("session id bytes", head.id().size(), "16");
  }
  if (!head.resumed_by().empty() && head.resumed_by().size() != kIdBytes) {
    return OutOfRange("resumed_by bytes", head.resumed_by().size(), "16 or 0");
  }
  if (head.trainer_state().size() > kMostTrainerState) {
    return OutOfRange("trainer_state bytes", head.trainer_state().size(),
                      "at most 65536");
  }
  RETURN_IF_ERROR(CheckFacts(head));
  RETURN_IF_ERROR(CheckCount("number", head.number()));
  RETURN_IF_ERROR(CheckCount("epoch", head.epoch()));
  RETURN_IF_ERROR(CheckCount("first_epoch", head.first_epoch()));
  RETURN_IF_ERROR(CheckCount("quota_bytes", head.quota_bytes()));
  const absl::Duration lease = absl::Nanoseconds(head.lease_nanoseconds());
  if (lease >= absl::ZeroDuration()) return absl::OkStatus();
  return OutOfRange("lease", absl::FormatDuration(lease), "at least 0");
}

std::vector<int64_t> ShapeOf(const TensorDescriptor& descriptor) {
  const Dims& dims = descriptor.dims;
  std::vector<int64_t> shape(dims.begin(), dims.end());
  if (!IsRowMajor(descriptor.layout)) {
    return {*ByteSize(descriptor) / ByteSizeOf(descriptor.dtype)};
  }
  if (shape.size() < 2) return shape;
  if (descriptor.layout == Layout::kNXC || descriptor.layout == Layout::kOXI) {
    std::rotate(shape.begin() + 1, shape.begin() + 2, shape.end());
  } else if (descriptor.layout == Layout::kXIO) {
    std::rotate(shape.begin(), shape.begin() + 2, shape.end());
    std::swap(shape[shape.size() - 2], shape[shape.size() - 1]);
  }
  return shape;
}

ImageItem MessageItem(std::string name, const ImageBytes& data) {
  const auto bytes = std::ssize(data.bytes);
  return {std::move(name), "U8", 1, {bytes}, data};
}

}  // namespace

absl::Status CheckDescriptor(const TensorDescriptor& descriptor,
                             absl::string_view field) {
  const size_t rank = descriptor.dims.size();
  if (rank > kMostRank) {
    return OutOfRange(field, absl::StrCat("rank ", rank),
                      absl::StrCat("at most ", kMostRank));
  }
  if (HasValidDims(descriptor) && ByteSize(descriptor)) return absl::OkStatus();
  return ShapeMismatch(field, ToString(descriptor), "dims of its layout");
}

absl::Status CheckImage(const SessionImage& image) {
  RETURN_IF_ERROR(CheckHead(image.head));
  std::set<absl::string_view> names;
  for (const ImageTensor& tensor : image.tensors) {
    RETURN_IF_ERROR(CheckName("tensor", tensor.name, &names));
    RETURN_IF_ERROR(CheckTensor(tensor));
  }
  names.clear();
  for (const ImageProgram& program : image.programs) {
    RETURN_IF_ERROR(CheckName("program", program.name, &names));
  }
  std::set<int64_t> numbers;
  for (const ImageReply& reply : image.replies) {
    if (reply.number < 1 || !numbers.insert(reply.number).second) {
      return OutOfRange("reply", reply.number, "a number from 1, once");
    }
  }
  return absl::OkStatus();
}

std::vector<ImageItem> ItemsOf(const SessionImage& image) {
  std::vector<ImageItem> items;
  items.reserve(image.tensors.size() + image.programs.size() +
                image.replies.size());
  for (const ImageTensor& tensor : image.tensors) {
    items.push_back({tensor.name == kReservedName
                         ? absl::StrCat("tensor/", tensor.name)
                         : tensor.name,
                     absl::AsciiStrToUpper(NameOf(tensor.descriptor.dtype)),
                     ByteSizeOf(tensor.descriptor.dtype),
                     ShapeOf(tensor.descriptor), tensor.data});
  }
  for (const ImageProgram& program : image.programs) {
    items.push_back(
        MessageItem(absl::StrCat("program/", program.name), program.message));
  }
  for (const ImageReply& reply : image.replies) {
    if (!reply.message) continue;
    items.push_back(
        MessageItem(absl::StrCat("reply/", reply.number), *reply.message));
  }
  return items;
}

void SetItems(const std::vector<ImageItem>& items, SessionImage* image) {
  auto next = items.begin();
  for (ImageTensor& tensor : image->tensors) tensor.data = (next++)->data;
  for (ImageProgram& program : image->programs) {
    program.message = (next++)->data;
  }
  for (ImageReply& reply : image->replies) {
    if (reply.message) reply.message = (next++)->data;
  }
}

}  // namespace convgrad
