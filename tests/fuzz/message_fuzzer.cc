// These functions of libFuzzer are for inputs that are messages.
#include "tests/fuzz/message_fuzzer.h"

#include <cstdint>
#include <cstring>
#include <string>

#include "google/protobuf/stubs/logging.h"
#include "tests/fuzz/message_mutator.h"

namespace {

using convgrad::fuzz::MessageMutator;
using convgrad::fuzz::NewInput;
using convgrad::fuzz::Words;
using google::protobuf::Message;

std::unique_ptr<Message> Parse(const uint8_t* data, size_t size) {
  std::unique_ptr<Message> input = NewInput();
  // Keeps the part of the input that can be parsed.
  input->ParsePartialFromArray(data, static_cast<int>(size));
  return input;
}

// Returns the size, 0 if the message is too large.
size_t Write(const Message& message, uint8_t* out, size_t max_size) {
  const std::string bytes = message.SerializePartialAsString();
  if (bytes.size() > max_size) return 0;
  std::memcpy(out, bytes.data(), bytes.size());
  return bytes.size();
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  // protobuf would log inputs that it can't parse.
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  convgrad::fuzz::Try(*Parse(data, size));
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size,
                                          size_t max_size, unsigned int seed) {
  const std::unique_ptr<Message> input = Parse(data, size);
  MessageMutator(seed, Words()).Mutate(input.get());
  return Write(*input, data, max_size);
}

extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* data1, size_t size1,
                                            const uint8_t* data2, size_t size2,
                                            uint8_t* out, size_t max_out_size,
                                            unsigned int seed) {
  const std::unique_ptr<Message> input = Parse(data1, size1);
  MessageMutator(seed, Words()).CrossOver(*Parse(data2, size2), input.get());
  return Write(*input, out, max_out_size);
}
