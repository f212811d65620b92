// Each structure-aware fuzzer defines these functions; message_fuzzer.cc calls
// them for libFuzzer.
#pragma once

#include <memory>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "google/protobuf/message.h"

namespace convgrad::fuzz {

// Returns an empty input.
std::unique_ptr<google::protobuf::Message> NewInput();
// Returns texts that are worth trying.
absl::Span<const absl::string_view> Words();
// Tries an input of the type of NewInput.
void Try(const google::protobuf::Message& input);

}  // namespace convgrad::fuzz
