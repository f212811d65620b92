#include "backends/proof/program_families.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "backends/core/program/program_shapes.h"

namespace convgrad {
namespace {

// A program with the operator that `name` begins with. It computes the value y,
// which is a loss, or is held against a target by a mean squared error.
struct Row {
  std::string name;
  std::vector<Dims> inputs;
  std::string text;
};

constexpr char kInputX[] = "input x\n";

// Returns the rows of operators that need more than values of one shape. 19 and
// 35 channels are whole vectors of 16 and a rest.
const std::vector<Row>& Rows() {
  static const auto* const kRows = new std::vector<Row>{
      {"conv",
       {{2, 19, 7, 6}},
       "parameter w [35, 19, 3, 3]\nparameter b [35]\n"
       "y = conv(x, w, b, padding=1)\n"},
      {"conv fast",
       {{1, 35, 17, 16}},
       "parameter w [40, 35, 3, 3]\nparameter b [40]\n"
       "y = conv(x, w, b, padding=1)\n"},
      {"conv depthwise",
       {{2, 32, 7, 6}},
       "parameter w [32, 1, 3, 3]\ny = conv(x, w, groups=32, padding=1)\n"},
      {"conv of images",
       {{2, 3, 11, 10}},
       "parameter w [32, 3, 3, 3]\ny = conv(x, w, padding=1, stride=2)\n"},
      {"conv long",
       {{2, 19, 24}},
       "parameter w [35, 19, 15]\nparameter b [35]\n"
       "y = conv(x, w, b, padding=7)\n"},
      {"conv long depthwise",
       {{2, 32, 24}},
       "parameter w [32, 1, 9]\ny = conv(x, w, groups=32, padding=4)\n"},
      {"conv_transpose",
       {{2, 19, 4, 5}},
       "parameter w [19, 16, 3, 3]\nparameter b [16]\n"
       "y = conv_transpose(x, w, b, output_padding=1, padding=1, stride=2)\n"},
      {"linear",
       {{6, 37}},
       "parameter w [21, 37]\nparameter b [21]\ny = linear(x, w, b)\n"},
      {"batch_norm training",
       {{3, 19, 5, 4}},
       "parameter gamma [19]\nparameter beta [19]\n"
       "parameter mean [19] fixed\nparameter var [19] fixed\n"
       "parameter count [] i64 fixed\n"
       "y = batch_norm(x, gamma, beta, mean, var, count, training=true)\n"},
      {"batch_norm",
       {{3, 19, 5, 4}},
       "parameter gamma [19]\nparameter beta [19]\n"
       "parameter mean [19] fixed\nparameter var [19] fixed\n"
       "y = batch_norm(x, gamma, beta, mean, var)\n"},
      {"group_norm",
       {{3, 18, 5, 4}},
       "parameter w [18]\nparameter b [18]\n"
       "y = group_norm(x, w, b, groups=6)\n"},
      {"max_pool",
       {{2, 19, 7, 9}},
       "y = max_pool(x, kernel_size=3, padding=1, stride=2)\n"},
      {"avg_pool",
       {{2, 19, 7, 9}},
       "y = avg_pool(x, kernel_size=3, padding=1, stride=2)\n"},
      {"adaptive_avg_pool",
       {{2, 19, 7, 9}},
       "y = adaptive_avg_pool(x, output_size=[3, 4])\n"},
      {"adaptive_max_pool",
       {{2, 19, 7, 9}},
       "y = adaptive_max_pool(x, output_size=[3, 4])\n"},
      {"mean", {{2, 19, 7, 9}}, "y = mean(x, dim=2, keepdim=true)\n"},
      {"sum", {{2, 19, 7, 9}}, "y = sum(x, dim=[2, 3], keepdim=true)\n"},
      {"sum over tokens", {{2, 19, 7}}, "y = sum(x, dim=1)\n"},
      {"amax", {{2, 19, 7}}, "y = amax(x, dim=1)\n"},
      {"norm", {{2, 19, 7}}, "y = norm(x, dim=-1)\n"},
      {"var", {{2, 19, 7}}, "y = var(x, dim=-1, keepdim=true)\n"},
      {"mul", {{2, 19, 3, 5}, {2, 19, 1, 1}}, "input z\ny = mul(x, z)\n"},
      {"where",
       {{2, 19, 3, 5}, {2, 19, 1, 1}},
       "input z\nm = gt(x, z)\ny = where(m, x, z)\n"},
      {"concat", {{2, 19, 3, 5}, {2, 16, 3, 5}}, "input z\ny = concat(x, z)\n"},
      {"reshape", {{2, 6, 19}}, "y = reshape(x, shape=[2, 3, -1])\n"},
      {"permute", {{2, 6, 19}}, "y = permute(x, dims=[0, 2, 1])\n"},
      {"slice", {{2, 6, 19}}, "y = slice(x, axis=1, end=6, step=2)\n"},
      {"select", {{2, 6, 19}}, "y = select(x, axis=1, index=5)\n"},
      {"expand", {{2, 1, 19}}, "y = expand(x, none, shape=[-1, 4, -1])\n"},
      {"read",
       {{2, 6, 19}},
       "parameter p [19]\nr = read(p, shape=[1, 1, -1])\ny = mul(x, r)\n"},
      {"pad", {{2, 19, 3, 5}}, "y = pad(x, pads=[1, 2, 1, 0], value=0.5)\n"},
      {"index_select",
       {{2, 19, 3}},
       "parameter p [2, 4] i64 fixed\ny = index_select(x, p, axis=1)\n"},
      {"index_select of an input",
       {{2, 19, 3}, {5}},
       "input z index\ny = index_select(x, z, axis=1)\n"},
      {"layer_norm",
       {{2, 6, 37}},
       "parameter w [37]\nparameter b [37]\ny = layer_norm(x, w, b)\n"},
      {"rms_norm", {{2, 6, 37}}, "parameter w [37]\ny = rms_norm(x, w)\n"},
      {"matmul", {{2, 3, 7, 19}, {2, 3, 19, 6}}, "input z\ny = matmul(x, z)\n"},
      {"attention",
       {{2, 3, 70, 16}, {2, 3, 19, 16}},
       "input z\ny = attention(x, z, z)\n"},
      {"upsample nearest",
       {{2, 19, 3, 5}},
       "y = upsample(x, scale_factor=2)\n"},
      {"upsample bilinear",
       {{2, 19, 3, 5}},
       "y = upsample(x, mode=bilinear, scale_factor=2)\n"},
      {"upsample trilinear",
       {{1, 19, 2, 3, 5}},
       "y = upsample(x, mode=trilinear, scale_factor=2)\n"},
      {"upsample bicubic",
       {{2, 19, 3, 5}},
       "y = upsample(x, mode=bicubic, scale_factor=2)\n"},
      {"normalize",
       {{2, 3, 6, 5}},
       "y = normalize(x, mean=[0.5, 0.25, 0.75], std=[0.5, 0.25, 2.0])\n"},
      {"dropout", {{3, 19, 5, 5}}, "y = dropout(x, p=0.25, training=true)\n"},
      {"cross_entropy",
       {{6, 19}, {6}},
       "input z index\ny = cross_entropy(x, z)\n"},
      {"cross_entropy soft",
       {{6, 19}, {6, 19}},
       "input z\ny = cross_entropy(x, z, label_smoothing=0.125)\n"},
  };
  return *kRows;
}

// Returns the row of an operator that isn't in Rows(). Its operands have one
// shape; its program gives the attributes that have no default.
Row PlainRow(const OperatorSpec& spec) {
  const Dims dims = {2, 19, 3, 5};
  Row row = {std::string(spec.name), {}, ""};
  std::vector<std::string> arguments;
  for (const OperandSpec& operand : spec.operands) {
    const bool is_first = row.inputs.empty();
    const absl::string_view value = is_first ? "x" : "z";
    if (!is_first) absl::StrAppend(&row.text, "input z\n");
    row.inputs.push_back(dims);
    const bool is_any = operand.range == OperandRange::kAny;
    arguments.emplace_back(is_any ? value : "r");
    if (is_any) continue;
    absl::StrAppend(&row.text, operand.range == OperandRange::kWithinOne
                                   ? absl::StrCat("r = tanh(", value, ")\n")
                                   : absl::StrCat("q = abs(", value, ")\n",
                                                  "r = add(q, other=0.5)\n"));
  }
  for (const AttributeSpec& attribute : spec.attributes) {
    const bool has_default = !attribute.default_text.empty();
    if (has_default || row.inputs.size() > 1) continue;
    const bool is_first = arguments.size() == 1;
    arguments.push_back(
        absl::StrCat(attribute.name, is_first ? "=-0.5" : "=0.5"));
  }
  absl::StrAppend(&row.text, "y = ", spec.name, "(",
                  absl::StrJoin(arguments, ", "), ")\n");
  return row;
}

ProgramRequest RequestOf(const Row& row, DataType compute_dtype) {
  std::vector<Dims> inputs = row.inputs;
  Program program =
      *ParseProgram(absl::StrCat(kInputX, row.text, "output y\n"));
  const Dims y = InferShapes(program, inputs)->dims.at("y");
  if (!y.empty()) {
    program = *ParseProgram(
        absl::StrCat("input target\n", kInputX, row.text,
                     "loss = mse(y, target)\noutput loss\noutput y\n"));
    inputs.insert(inputs.begin(), y);
  }
  ProgramRequest request;
  request.program = std::make_shared<Program>(std::move(program));
  request.part = ProgramPart::kTrain;
  request.compute_dtype = compute_dtype;
  request.fast = true;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool is_index = request.program->inputs[i].is_index;
    request.inputs.push_back(
        {is_index ? DataType::kI64 : DataType::kF32, Layout::kNCX, inputs[i]});
    request.input_gradients.push_back(!is_index);
  }
  return request;
}

}  // namespace

std::vector<ProgramFamily> ProgramFamilies() {
  std::vector<ProgramFamily> families;
  const auto add = [&](const Row& row) {
    for (DataType dtype : {DataType::kF32, DataType::kBF16}) {
      const auto operation = *ProgramOperation::Make(RequestOf(row, dtype));
      const std::string op = row.name.substr(0, row.name.find(' '));
      families.push_back({row.name, *ParseOperator(op), operation});
    }
  };
  for (const Row& row : Rows()) add(row);
  for (const OperatorSpec& spec : Operators()) {
    const auto has_op = [&](const ProgramFamily& family) {
      return family.op == spec.op;
    };
    if (std::none_of(families.begin(), families.end(), has_op)) {
      add(PlainRow(spec));
    }
  }
  std::stable_sort(families.begin(), families.end(),
                   [](const ProgramFamily& a, const ProgramFamily& b) {
                     return a.op < b.op;
                   });
  return families;
}

std::string FamilyOf(Operator op, DataType compute_dtype) {
  return absl::StrCat(NameOf(compute_dtype), " ", NameOf(op), " of networks");
}

}  // namespace convgrad
