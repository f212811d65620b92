// `ImageItem` is one byte string of an image: a tensor, a program or a reply.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/snapshots/session_image.h"

namespace convgrad {

// An item as a part stores it. Value type.
struct ImageItem {
  // The name in the part. A tensor has its own name, because readers of
  // safetensors expect it; "program/NAME" and "reply/NUMBER" can't be names of
  // tensors.
  std::string name;
  std::string dtype;  // In safetensors' words.
  int64_t element_bytes = 1;
  // The dims in the order of memory. Blocked layouts have one axis, because
  // their packing has no meaning elsewhere.
  std::vector<int64_t> shape;
  ImageBytes data;

  int64_t bytes() const { return std::ssize(data.bytes); }
};

// Checks that `descriptor` has a size in bytes; `field` names it in errors.
// Errors: kInvalidArgument.
absl::Status CheckDescriptor(const TensorDescriptor& descriptor,
                             absl::string_view field);

// Checks names, numbers and sizes of an image.
// Errors: kInvalidArgument naming the field.
absl::Status CheckImage(const SessionImage& image);

// Returns the tensors, the programs and the replies that are kept, in this
// order. Requires: CheckImage(image) is OK.
std::vector<ImageItem> ItemsOf(const SessionImage& image);

// Sets the bytes of the image. Requires: `items` are those of ItemsOf(*image),
// in its order.
void SetItems(const std::vector<ImageItem>& items, SessionImage* image);

}  // namespace convgrad
