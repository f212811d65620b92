// These functions convert between the wire's message of a program and the
// core's type. All validation of untrusted programs happens here and in the
// core functions called here.
//
// Thread-safe: free functions without state.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/core/program/program.h"
#include "convgrad/v1/network.pb.h"

namespace convgrad {

// Returns the program, validated. Fields in errors begin with "program.".
// Errors: kInvalidArgument naming field, found and expected; kUnimplemented for
// an unknown critical field and for an operator of the contract that isn't
// implemented.
absl::StatusOr<Program> DecodeProgram(const v1::Program& message);

// Returns the message. DecodeProgram(EncodeProgram(p)) == p for every valid p.
v1::Program EncodeProgram(const Program& program);

// Returns the bytes of EncodeProgram(program).
std::string SerializeProgram(const Program& program);
// Returns the program that has these bytes.
// Errors: those of DecodeProgram; kInvalidArgument, reason MALFORMED.
absl::StatusOr<Program> DeserializeProgram(absl::string_view bytes);

}  // namespace convgrad
