#include "proto/codec/codec_enums.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "google/protobuf/descriptor.h"
#include "proto/codec/codec.h"
#include "proto/codec/decode_operation.h"

namespace convgrad {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// The wire's enums have the core's values in the same order, after UNSPECIFIED.
static_assert(v1::DATA_TYPE_F16 == static_cast<int>(DataType::kF16) + 1);
static_assert(v1::DATA_TYPE_I64 == static_cast<int>(DataType::kI64) + 1);
static_assert(v1::DATA_TYPE_U16 == static_cast<int>(DataType::kU16) + 1);
static_assert(v1::LAYOUT_FRACTAL_Z_3D ==
              static_cast<int>(Layout::kFractalZ3D) + 1);
static_assert(v1::PADDING_SAME_LOWER ==
              static_cast<int>(Padding::kSameLower) + 1);
static_assert(v1::RESULT_GRAD_RESIDUAL == kResultCount);
static_assert(v1::OPERAND_OUTPUT == kOperandCount);

// Returns nullopt for UNSPECIFIED and for values above `last`.
template <typename Core, typename Wire>
std::optional<Core> ToCore(Wire wire, Wire last) {
  if (wire < 1 || wire > last) return std::nullopt;
  return static_cast<Core>(wire - 1);
}

template <typename Wire, typename Core>
Wire ToWire(Core core) {
  return static_cast<Wire>(static_cast<int>(core) + 1);
}

// Returns the names of `type` except UNSPECIFIED.
std::string NamesOf(const EnumDescriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.value_count(); ++i) {
    if (type.value(i)->number() != 0) names.push_back(type.value(i)->name());
  }
  return absl::StrJoin(names, ", ");
}

absl::Status CheckKnown(const EnumDescriptor& type, int number,
                        const std::string& path) {
  if (type.FindValueByNumber(number) != nullptr) return absl::OkStatus();
  return InvalidEnum(path, number, NamesOf(type));
}

absl::Status CheckGiven(int number, const EnumDescriptor& type,
                        const std::string& path) {
  if (number != 0) return absl::OkStatus();
  return InvalidEnum(path, type.value(0)->name(), NamesOf(type));
}

absl::Status CheckKnownInField(const Message& message,
                               const FieldDescriptor& field, int index,
                               const std::string& path) {
  const Reflection& reflection = *message.GetReflection();
  const bool repeated = field.is_repeated();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    const int number =
        repeated ? reflection.GetRepeatedEnumValue(message, &field, index)
                 : reflection.GetEnumValue(message, &field);
    return CheckKnown(*field.enum_type(), number, path);
  }
  return CheckKnownEnums(
      repeated ? reflection.GetRepeatedMessage(message, &field, index)
               : reflection.GetMessage(message, &field),
      absl::StrCat(path, "."));
}

}  // namespace

std::optional<DataType> DecodeDataType(v1::DataType dtype) {
  return ToCore<DataType>(dtype, v1::DATA_TYPE_U16);
}

std::optional<Layout> DecodeLayout(v1::Layout layout) {
  return ToCore<Layout>(layout, v1::LAYOUT_FRACTAL_Z_3D);
}

Padding DecodePadding(v1::Padding padding) {
  return ToCore<Padding>(padding, v1::PADDING_SAME_LOWER)
      .value_or(Padding::kExplicit);
}

std::optional<Operand> DecodeOperand(v1::Operand which) {
  return ToCore<Operand>(which, v1::OPERAND_OUTPUT);
}

v1::Operand EncodeOperand(Operand which) { return ToWire<v1::Operand>(which); }

std::optional<Result> DecodeResult(v1::Result which) {
  return ToCore<Result>(which, v1::RESULT_GRAD_RESIDUAL);
}

v1::Result EncodeResult(Result which) { return ToWire<v1::Result>(which); }

v1::DataType EncodeDataType(DataType dtype) {
  return ToWire<v1::DataType>(dtype);
}

v1::Layout EncodeLayout(Layout layout) { return ToWire<v1::Layout>(layout); }

std::string ShortName(const EnumDescriptor& type, int number) {
  const auto* value = type.FindValueByNumber(number);
  if (value == nullptr) return "";
  // The name of every enum's value 0 is its prefix and UNSPECIFIED.
  const absl::string_view prefix =
      absl::StripSuffix(type.value(0)->name(), "UNSPECIFIED");
  return std::string(absl::StripPrefix(value->name(), prefix));
}

absl::Status CheckKnownEnums(const Message& message, const std::string& path) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_ENUM &&
        field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      continue;
    }
    const std::string name = path + field->name();
    if (!field->is_repeated()) {
      RETURN_IF_ERROR(CheckKnownInField(message, *field, 0, name));
      continue;
    }
    const int size = message.GetReflection()->FieldSize(message, field);
    for (int i = 0; i < size; ++i) {
      RETURN_IF_ERROR(CheckKnownInField(message, *field, i,
                                        absl::StrCat(name, "[", i, "]")));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTensorEnumsGiven(const v1::Tensor& tensor, bool is_bias,
                                   const std::string& path) {
  RETURN_IF_ERROR(CheckGiven(tensor.dtype(), *v1::DataType_descriptor(),
                             absl::StrCat(path, ".dtype")));
  if (!is_bias) {
    RETURN_IF_ERROR(CheckGiven(tensor.layout(), *v1::Layout_descriptor(),
                               absl::StrCat(path, ".layout")));
  }
  if (!tensor.has_step_result()) return absl::OkStatus();
  return CheckGiven(tensor.step_result().result(), *v1::Result_descriptor(),
                    absl::StrCat(path, ".step_result.result"));
}

absl::Status CheckEnums(const v1::ConvOperation& operation) {
  RETURN_IF_ERROR(CheckKnownEnums(operation, "operation."));
  for (Operand operand : kAllOperands) {
    const v1::Tensor* tensor = FindTensor(operation.operands(), operand);
    if (tensor == nullptr) continue;
    RETURN_IF_ERROR(CheckTensorEnumsGiven(*tensor, operand == Operand::kBias,
                                          OperandPath(operand)));
  }
  for (int i = 0; i < operation.results_size(); ++i) {
    RETURN_IF_ERROR(CheckGiven(operation.results(i).which(),
                               *v1::Result_descriptor(),
                               absl::StrCat(ResultPath(i), ".which")));
  }
  return absl::OkStatus();
}

}  // namespace convgrad
