#include "client/cpp/command_line/files/tensor_files.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/logical_tensor.h"
#include "backends/core/status.h"
#include "client/cpp/command_line/files/npy.h"
#include "client/cpp/command_line/files/npz.h"

namespace convgrad {
namespace {

absl::StatusOr<std::vector<double>> ValuesOf(const NpyArray& array,
                                             const std::string& path,
                                             const Dims& dims) {
  if (!std::equal(array.shape.begin(), array.shape.end(), dims.begin(),
                  dims.end())) {
    return ShapeMismatch(path, ToString(absl::MakeConstSpan(array.shape)),
                         ToString(dims));
  }
  const int64_t width = ByteSizeOf(array.dtype);
  std::vector<double> values(array.data.size() / width);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = LoadAsDouble(array.dtype, array.data.data() + i * width);
  }
  return values;
}

// Returns the result's elements as a row-major array.
NpyArray ArrayOf(const OperationResult& result) {
  NpyArray array;
  array.dtype = result.descriptor.dtype;
  array.shape.assign(result.descriptor.dims.begin(),
                     result.descriptor.dims.end());
  TensorDescriptor plain = result.descriptor;
  plain.layout = Layout::kNCX;
  array.data.resize(*ByteSize(plain));
  StoreLogical(plain, LoadLogical(result.descriptor, result.bytes.data()),
               array.data.data());
  return array;
}

}  // namespace

absl::StatusOr<std::optional<std::vector<double>>> ReadOperand(
    Operand operand, const Dims& dims, const Settings& settings) {
  const std::string name(NameOf(operand));
  const std::string* path = &settings.files[PositionOf(operand)];
  if (path->empty() && !settings.operands.empty()) {
    ASSIGN_OR_RETURN(const std::vector<std::string> names,
                     NamesInNpz(settings.operands));
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      path = &settings.operands;
    }
  }
  if (path->empty()) return std::nullopt;
  ASSIGN_OR_RETURN(const NpyArray array,
                   IsNpz(*path) ? ReadNpz(*path, name) : ReadNpy(*path));
  return ValuesOf(array, *path, dims);
}

absl::Status CheckOperandNames(const Settings& settings) {
  if (settings.operands.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   NamesInNpz(settings.operands));
  for (const std::string& name : names) {
    const bool known =
        std::any_of(kAllOperands.begin(), kAllOperands.end(),
                    [&](Operand operand) { return NameOf(operand) == name; });
    if (known) continue;
    return OutOfRange(settings.operands, absl::StrCat("\"", name, "\""),
                      "input, weight, bias, residual, grad_output or output");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> WriteResults(
    const OperationReply& reply, const std::string& out) {
  std::vector<std::pair<std::string, NpyArray>> arrays;
  for (const OperationResult& result : reply.results) {
    arrays.emplace_back(NameOf(result.which), ArrayOf(result));
  }
  if (IsNpz(out)) {
    RETURN_IF_ERROR(WriteNpz(out, arrays));
    return std::vector<std::string>{out};
  }
  std::vector<std::string> paths;
  for (const auto& [name, array] : arrays) {
    paths.push_back(absl::StrCat(out, name, ".npy"));
    RETURN_IF_ERROR(WriteNpy(paths.back(), array));
  }
  return paths;
}

}  // namespace convgrad
