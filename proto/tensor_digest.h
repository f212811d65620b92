// `DigestOf` computes the digest that identifies a tensor's bytes
// (NamedPut.digest in session.proto).
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "backends/core/tensor_descriptor.h"

namespace convgrad {

inline constexpr size_t kDigestBytes = 32;

// Returns the SHA-256 of a line with dtype, layout, c0 and dims as in ToString
// ("f32:OIX[64,3,7,7]", "f32:NDC1HWC0/8[1,3,5,5]"; for FRACTAL_Z_3D with
// several groups also " g" and the groups), a line feed, and `bytes`, packed.
// Thread-safe.
std::string DigestOf(const TensorDescriptor& descriptor,
                     absl::string_view bytes);

}  // namespace convgrad
