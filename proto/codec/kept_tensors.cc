#include "proto/codec/kept_tensors.h"

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "proto/codec/codec.h"
#include "proto/codec/decode_operation.h"

namespace convgrad {
namespace {

Dims DimsOf(const v1::Tensor& tensor) {
  return Dims(tensor.dims().begin(), tensor.dims().end());
}

absl::Status Mismatch(Reason reason, const std::string& path,
                      const std::string& found,
                      const TensorDescriptor& expected) {
  return InvalidField(
      reason, path, found,
      absl::StrCat("unset, or as the kept tensor: ", ToString(expected)));
}

template <typename Message>
absl::Status CompleteElements(const TensorDescriptor& kept,
                              const std::string& path, Message* message) {
  const v1::DataType dtype = EncodeDataType(kept.dtype);
  if (message->dtype() == v1::DATA_TYPE_UNSPECIFIED) message->set_dtype(dtype);
  if (message->dtype() != dtype) {
    return Mismatch(Reason::kDtypeMismatch, path + ".dtype",
                    ShortName(*v1::DataType_descriptor(), message->dtype()),
                    kept);
  }
  const v1::Layout layout = EncodeLayout(kept.layout);
  if (message->layout() == v1::LAYOUT_UNSPECIFIED) message->set_layout(layout);
  if (message->layout() != layout) {
    return Mismatch(Reason::kLayoutMismatch, path + ".layout",
                    ShortName(*v1::Layout_descriptor(), message->layout()),
                    kept);
  }
  if (IsRowMajor(kept.layout)) return absl::OkStatus();
  const auto c0 = static_cast<int32_t>(kept.c0);
  if (message->c0() == 0) message->set_c0(c0);
  if (message->c0() == c0) return absl::OkStatus();
  return Mismatch(Reason::kLayoutMismatch, path + ".c0",
                  absl::StrCat(message->c0()), kept);
}

absl::Status CompleteOperand(const TensorDescriptor& kept, int64_t groups,
                             const std::string& path, v1::Tensor* message) {
  RETURN_IF_ERROR(CompleteElements(kept, path, message));
  if (message->dims_size() == 0) {
    for (int64_t extent : kept.dims) message->add_dims(extent);
  }
  if (DimsOf(*message) != kept.dims) {
    return Mismatch(Reason::kShapeMismatch, path + ".dims",
                    ToString(absl::MakeConstSpan(DimsOf(*message))), kept);
  }
  if (kept.layout == Layout::kFractalZ3D && kept.groups != groups) {
    return InvalidField(Reason::kLayoutMismatch, path,
                        absl::StrCat("a weight of ", kept.groups, " groups"),
                        groups);
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<KeptReference> KeptReferencesOf(
    const v1::ConvOperation& operation) {
  std::vector<KeptReference> references;
  for (Operand which : kAllOperands) {
    const v1::Tensor* tensor = FindTensor(operation.operands(), which);
    if (tensor == nullptr || !tensor->has_kept()) continue;
    references.push_back(
        {which, -1, DecodeKeptName(tensor->kept()), OperandPath(which)});
  }
  for (int i = 0; i < operation.results_size(); ++i) {
    const v1::ResultRequest& result = operation.results(i);
    if (!result.has_kept() || result.store() != v1::ResultRequest::STORE_ADD) {
      continue;
    }
    references.push_back(
        {std::nullopt,
         i,
         {result.kept().session_id(), result.kept().tensor_id(), 0},
         ResultPath(i)});
  }
  return references;
}

absl::Status CompleteKept(const KeptReference& reference,
                          const TensorDescriptor& kept,
                          v1::ConvOperation* operation) {
  if (!reference.operand) {
    return CompleteElements(kept, reference.path,
                            operation->mutable_results(reference.result));
  }
  const int64_t groups =
      operation->problem().has_groups() ? operation->problem().groups() : 1;
  return CompleteOperand(
      kept, groups, reference.path,
      MutableTensor(operation->mutable_operands(), *reference.operand));
}

}  // namespace convgrad
