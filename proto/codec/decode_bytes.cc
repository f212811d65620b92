// Decodes the sources and destinations of a request's tensors: payloads,
// regions, kept tensors, and others that this version doesn't support.
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "backends/core/checked_math.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "proto/codec/decode_operation.h"

namespace convgrad {
namespace {

std::string Bytes(int64_t bytes) { return absl::StrCat(bytes, " bytes"); }

bool Overlap(const RegionRange& a, const RegionRange& b) {
  return a.region_id == b.region_id &&
         a.byte_offset < b.byte_offset + b.byte_length &&
         b.byte_offset < a.byte_offset + a.byte_length && a.byte_length > 0 &&
         b.byte_length > 0;
}

// Checks the sources and destinations of a request's tensors and stores them in
// the decoded operation.
class ByteChecker {
 public:
  ByteChecker(Carrier carrier, absl::Span<const int64_t> payload_bytes,
              DecodedOperation* decoded)
      : carrier_(carrier), payloads_(payload_bytes), decoded_(*decoded) {
    decoded->result_regions.resize(decoded->operation.results.size());
    decoded->kept_results.resize(decoded->operation.results.size());
  }

  absl::Status CheckOperand(const v1::Tensor& tensor, Operand operand) {
    const std::string path = OperandPath(operand);
    TensorSource& source = decoded_.sources[PositionOf(operand)];
    const TensorDescriptor& descriptor = *decoded_.operation.operand(operand);
    switch (tensor.source_case()) {
      case v1::Tensor::kInline:
        if (carrier_ == Carrier::kStream) {
          return WrongSource(path, "inline", "stream: its bytes are in frames");
        }
        return DecodePlace(tensor, descriptor, path, &payloads_, &source);
      case v1::Tensor::kRegion:
        NoteRegion(path);
        return DecodePlace(tensor, descriptor, path, &payloads_, &source);
      case v1::Tensor::kKept:
        source.kept = DecodeKeptName(tensor.kept());
        return absl::OkStatus();
      case v1::Tensor::kStepResult:
        NoteUnsupported(
            Unsupported(path + ".step_result", "", "inline, region or kept"));
        return absl::OkStatus();
      case v1::Tensor::kStream:
        if (carrier_ == Carrier::kStream) return absl::OkStatus();
        return WrongSource(path, "stream", "inline: this is no stream");
      case v1::Tensor::SOURCE_NOT_SET:
        break;
    }
    return Missing(path, "no source",
                   "inline, region, kept, step_result or stream");
  }

  // Requires: all operands and all results before it are checked.
  absl::Status CheckResult(const v1::ResultRequest& request, int index) {
    const std::string path = ResultPath(index);
    const bool adds = request.store() == v1::ResultRequest::STORE_ADD;
    if (request.has_kept()) return KeepResult(request, index, adds);
    if (adds) {
      NoteUnsupported(
          Unsupported(path + ".store", "STORE_ADD",
                      "STORE_OVERWRITE, unless the destination is kept"));
    }
    if (!request.has_region()) return absl::OkStatus();
    const int64_t bytes =
        ByteSize(decoded_.operation.results[index].descriptor).value_or(0);
    ASSIGN_OR_RETURN(
        const RegionRange range,
        CheckRange(DecodeRegion(request.region()), bytes, path + ".region"));
    for (Operand operand : kAllOperands) {
      RETURN_IF_ERROR(CheckApart(range,
                                 decoded_.sources[PositionOf(operand)].region,
                                 path, OperandPath(operand)));
    }
    for (int i = 0; i < index; ++i) {
      RETURN_IF_ERROR(
          CheckApart(range, decoded_.result_regions[i], path, ResultPath(i)));
    }
    NoteRegion(path);
    decoded_.result_regions[index] = range;
    return absl::OkStatus();
  }

  absl::Status CheckPayloads() const { return payloads_.CheckAll(); }

 private:
  static absl::Status WrongSource(const std::string& path,
                                  absl::string_view found,
                                  absl::string_view expected) {
    return Malformed(path + ".source", found, expected);
  }

  // Returns an error if the ranges overlap; plans need separate results.
  static absl::Status CheckApart(const RegionRange& result,
                                 const std::optional<RegionRange>& other,
                                 const std::string& path,
                                 const std::string& other_path) {
    if (!other || !Overlap(result, *other)) return absl::OkStatus();
    return OutOfRange(
        path + ".region",
        absl::StrCat("bytes ", result.byte_offset, " to ",
                     result.byte_offset + result.byte_length),
        absl::StrCat("none of ", other_path, ", which has ", other->byte_offset,
                     " to ", other->byte_offset + other->byte_length));
  }

  absl::Status KeepResult(const v1::ResultRequest& request, int index,
                          bool adds) {
    const std::string path = ResultPath(index) + ".kept";
    const KeptResult kept{request.kept().tensor_id(), adds};
    for (int i = 0; i < index; ++i) {
      const auto& other = decoded_.kept_results[i];
      if (!other || other->name != kept.name) continue;
      return InvalidField(
          Reason::kDuplicate, path + ".tensor_id",
          absl::StrCat("'", kept.name, "', as in ", ResultPath(i)),
          "a name of its own");
    }
    const DataType dtype = decoded_.operation.results[index].descriptor.dtype;
    if (adds && dtype != DataType::kF32) {
      return InvalidField(Reason::kDtypeMismatch, ResultPath(index) + ".dtype",
                          NameOf(dtype), "f32, which sums are kept in");
    }
    decoded_.kept_results[index] = kept;
    return absl::OkStatus();
  }

  void NoteRegion(const std::string& path) {
    if (carrier_ != Carrier::kStream) return;
    NoteUnsupported(Unsupported(path + ".region", "a region of a stream",
                                "frames, or kept"));
  }

  void NoteUnsupported(absl::Status status) {
    if (decoded_.support.ok()) decoded_.support = std::move(status);
  }

  const Carrier carrier_;
  NamedPayloads payloads_;
  DecodedOperation& decoded_;
};

}  // namespace

absl::Status CheckPayloadCount(absl::Span<const int64_t> payload_bytes,
                               size_t expected) {
  if (payload_bytes.size() == expected) return absl::OkStatus();
  return Malformed("payloads", payload_bytes.size(), expected);
}

absl::StatusOr<RegionRange> CheckRange(const RegionRange& range, int64_t bytes,
                                       const std::string& path) {
  const size_t id_bytes = range.region_id.size();
  if (id_bytes != kRegionIdBytes) {
    return OutOfRange(absl::StrCat(path, ".region_id"),
                      Bytes(static_cast<int64_t>(id_bytes)),
                      Bytes(kRegionIdBytes));
  }
  if (range.byte_offset < 0) {
    return OutOfRange(absl::StrCat(path, ".byte_offset"), range.byte_offset,
                      "at least 0");
  }
  if (range.byte_length != bytes) {
    return InvalidField(Reason::kByteCountMismatch,
                        absl::StrCat(path, ".byte_length"),
                        Bytes(range.byte_length), Bytes(bytes));
  }
  if (!CheckedAdd(range.byte_offset, range.byte_length)) {
    return InvalidField(Reason::kOverflow, absl::StrCat(path, ".byte_offset"),
                        range.byte_offset, "an end below 2^63 bytes");
  }
  return range;
}

absl::Status DecodePlace(const v1::Tensor& tensor,
                         const TensorDescriptor& descriptor,
                         const std::string& path, NamedPayloads* payloads,
                         TensorSource* source) {
  if (tensor.has_inline_()) {
    source->payload_index = tensor.inline_().payload_index();
    return payloads->Name(source->payload_index, descriptor, path);
  }
  ASSIGN_OR_RETURN(source->region, CheckRange(DecodeRegion(tensor.region()),
                                              ByteSize(descriptor).value_or(0),
                                              path + ".region"));
  return absl::OkStatus();
}

absl::Status DecodeBytes(const v1::ConvOperation& message, Carrier carrier,
                         absl::Span<const int64_t> payload_bytes,
                         DecodedOperation* decoded) {
  ByteChecker checker(carrier, payload_bytes, decoded);
  for (Operand operand : kAllOperands) {
    const v1::Tensor* tensor = FindTensor(message.operands(), operand);
    if (tensor == nullptr) continue;
    RETURN_IF_ERROR(checker.CheckOperand(*tensor, operand));
  }
  for (int i = 0; i < message.results_size(); ++i) {
    RETURN_IF_ERROR(checker.CheckResult(message.results(i), i));
  }
  return checker.CheckPayloads();
}

}  // namespace convgrad
