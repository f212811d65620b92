// Tests which kept tensors a request names, and how they complete it.
#include "proto/codec/kept_tensors.h"

#include <optional>
#include <vector>

#include "proto/codec/codec.h"
#include "tests/proto/random_operation.h"
#include "tests/proto/status_matchers.h"

namespace convgrad {
namespace {

// Completes `*message` with a session that keeps `kept` under every name.
absl::Status Complete(const TensorDescriptor& kept,
                      v1::ConvOperation* message) {
  for (const KeptReference& reference : KeptReferencesOf(*message)) {
    RETURN_IF_ERROR(CompleteKept(reference, kept, message));
  }
  return absl::OkStatus();
}

TEST(KeptReferences, AreOperandsAndSums) {
  v1::ConvOperation message = EncodeOperation(SmallBackward());
  EXPECT_TRUE(KeptReferencesOf(message).empty());
  auto* weight = message.mutable_operands()->mutable_weight()->mutable_kept();
  weight->set_tensor_id("w");
  weight->set_version(2);
  weight->set_session_id("s");
  // A tensor that is overwritten doesn't determine its result.
  v1::ResultRequest* result = message.mutable_results(0);
  result->mutable_kept()->set_tensor_id("sum");
  ASSERT_EQ(KeptReferencesOf(message).size(), 1U);
  result->set_store(v1::ResultRequest::STORE_ADD);
  const std::vector<KeptReference> references = KeptReferencesOf(message);
  ASSERT_EQ(references.size(), 2U);
  EXPECT_EQ(references[0].operand, Operand::kWeight);
  EXPECT_EQ(references[0].name, (KeptName{"s", "w", 2}));
  EXPECT_EQ(references[0].path, "operation.operands.weight");
  EXPECT_EQ(references[1].operand, std::nullopt);
  EXPECT_EQ(references[1].result, 0);
  EXPECT_EQ(references[1].name, (KeptName{"", "sum", 0}));
  EXPECT_EQ(references[1].path, "operation.results[0]");
}

TEST(CompleteKept, FillsInWhatIsUnset) {
  const ConvOperation operation = SmallBackward();
  v1::ConvOperation message = EncodeOperation(operation);
  const TensorDescriptor& weight = *operation.operand(Operand::kWeight);
  v1::Tensor* tensor = message.mutable_operands()->mutable_weight();
  tensor->Clear();
  tensor->mutable_kept()->set_tensor_id("w");
  ASSERT_TRUE(Complete(weight, &message).ok());
  EXPECT_EQ(*DecodeTensor(*tensor, 1, "w"), weight);
  // The fields that are set must agree.
  tensor->set_dims(0, 7);
  ExpectInvalid(Complete(weight, &message), Reason::kShapeMismatch,
                "operation.operands.weight.dims");
  tensor->set_dims(0, weight.dims[0]);
  tensor->set_layout(v1::LAYOUT_OXI);
  ExpectInvalid(Complete(weight, &message), Reason::kLayoutMismatch,
                "operation.operands.weight.layout");
  tensor->set_layout(v1::LAYOUT_OIX);
  tensor->set_dtype(v1::DATA_TYPE_F16);
  ExpectInvalid(Complete(weight, &message), Reason::kDtypeMismatch,
                "operation.operands.weight.dtype");
}

TEST(CompleteKept, ASumMustHaveTheKeptElements) {
  v1::ConvOperation message = EncodeOperation(SmallBackward());
  v1::ResultRequest* result = message.mutable_results(0);
  result->mutable_kept()->set_tensor_id("sum");
  result->set_store(v1::ResultRequest::STORE_ADD);
  result->clear_dtype();
  result->clear_layout();
  const TensorDescriptor kept{DataType::kF32, Layout::kNXC, {1, 2, 3}, 0, 1};
  ASSERT_TRUE(Complete(kept, &message).ok());
  EXPECT_EQ(result->dtype(), v1::DATA_TYPE_F32);
  EXPECT_EQ(result->layout(), v1::LAYOUT_NXC);
  result->set_layout(v1::LAYOUT_NCX);
  ExpectInvalid(Complete(kept, &message), Reason::kLayoutMismatch,
                "operation.results[0].layout");
}

TEST(CompleteKept, AFractalWeightMustHaveTheOperationsGroupsAndC0) {
  v1::ConvOperation message = EncodeOperation(SmallBackward());
  TensorDescriptor kept = *SmallBackward().operand(Operand::kWeight);
  kept.layout = Layout::kFractalZ3D;
  kept.c0 = 8;
  kept.groups = SmallBackward().problem.groups;
  v1::Tensor* tensor = message.mutable_operands()->mutable_weight();
  tensor->Clear();
  tensor->mutable_kept()->set_tensor_id("w");
  ASSERT_TRUE(Complete(kept, &message).ok());
  EXPECT_EQ(tensor->c0(), 8);
  tensor->set_c0(16);
  ExpectInvalid(Complete(kept, &message), Reason::kLayoutMismatch,
                "operation.operands.weight.c0");
  tensor->set_c0(8);
  ++kept.groups;
  ExpectInvalid(Complete(kept, &message), Reason::kLayoutMismatch,
                "operation.operands.weight");
}

}  // namespace
}  // namespace convgrad
