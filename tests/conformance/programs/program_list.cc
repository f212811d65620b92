#include "tests/conformance/programs/program_list.h"

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace convgrad::testing_support {
namespace {

[[noreturn]] void Die(const std::string& path, const std::string& what) {
  std::cerr << path << ": " << what << "\n";
  std::abort();
}

Dims ParseDims(absl::string_view text) {
  Dims dims;
  for (absl::string_view part : absl::StrSplit(text, 'x')) {
    int64_t extent = 0;
    if (!absl::SimpleAtoi(part, &extent)) return {};
    dims.push_back(extent);
  }
  return dims;
}

// Parses the text after one "== ".
ProgramCase ParseCase(const std::string& path, absl::string_view block) {
  const std::vector<std::string> lines = absl::StrSplit(block, '\n');
  const std::vector<std::string> words =
      absl::StrSplit(lines[0], ' ', absl::SkipEmpty());
  ProgramCase result;
  result.name = words.at(0);
  std::map<std::string, Dims> dims;
  for (size_t i = 1; i < words.size(); ++i) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(words[i], absl::MaxSplits('=', 1));
    if (parts.second.empty()) {
      result.words.insert(words[i]);
    } else {
      dims[parts.first] = ParseDims(parts.second);
    }
  }
  std::string text;
  for (size_t i = 1; i < lines.size(); ++i) {
    if (absl::StartsWith(lines[i], "> ")) {
      result.expected.push_back(lines[i].substr(2));
    } else {
      absl::StrAppend(&text, lines[i], "\n");
    }
  }
  auto program = ParseProgram(text);
  if (!program.ok()) {
    Die(path, absl::StrCat(result.name, ": ", program.status().message()));
  }
  result.program = std::make_shared<const Program>(*std::move(program));
  for (const ProgramInput& input : result.program->inputs) {
    result.inputs.push_back(dims[input.name]);
  }
  const auto shapes = InferShapes(*result.program, result.inputs);
  if (shapes.ok()) return result;
  Die(path, absl::StrCat(result.name, ": ", shapes.status().message()));
}

}  // namespace

std::vector<ProgramCase> ReadProgramList(const std::string& path) {
  std::ifstream file(path);
  std::stringstream content;
  content << file.rdbuf();
  const std::string text = absl::StrCat("\n", content.str());
  const std::vector<std::string> blocks = absl::StrSplit(text, "\n== ");
  if (!file || blocks.size() < 2) Die(path, "no programs");
  std::vector<ProgramCase> cases;
  for (size_t i = 1; i < blocks.size(); ++i) {
    cases.push_back(ParseCase(path, blocks[i]));
  }
  return cases;
}

ProgramRequest RequestOf(const ProgramCase& given, ProgramPart part,
                         DataType compute_dtype) {
  ProgramRequest request;
  request.program = given.program;
  request.part = part;
  request.compute_dtype = compute_dtype;
  // Has an effect on the programs whose names begin with fast.
  request.fast = true;
  for (size_t i = 0; i < given.inputs.size(); ++i) {
    TensorDescriptor descriptor;
    descriptor.dims = given.inputs[i];
    const bool is_index = given.program->inputs[i].is_index;
    if (is_index) descriptor.dtype = DataType::kI64;
    request.inputs.push_back(descriptor);
    request.input_gradients.push_back(!is_index);
  }
  if (part == ProgramPart::kBackward) {
    request.output_gradients = given.program->outputs;
  }
  return request;
}

}  // namespace convgrad::testing_support
