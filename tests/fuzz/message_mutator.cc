#include "tests/fuzz/message_mutator.h"

#include <limits>

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace convgrad::fuzz {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::Reflection;

constexpr int kMostElements = 64;
constexpr size_t kMostTextBytes = 300;
constexpr int64_t kEdges[] = {0,
                              1,
                              -1,
                              2,
                              16,
                              255,
                              4096,
                              int64_t{1} << 20,
                              int64_t{1} << 31,
                              (int64_t{1} << 31) - 1,
                              -(int64_t{1} << 31),
                              int64_t{1} << 32,
                              int64_t{1} << 61,
                              std::numeric_limits<int64_t>::max(),
                              std::numeric_limits<int64_t>::min()};
constexpr double kDoubleEdges[] = {0,
                                   -0.0,
                                   1,
                                   0.5,
                                   -1,
                                   1e-300,
                                   1e300,
                                   std::numeric_limits<double>::infinity(),
                                   -std::numeric_limits<double>::infinity(),
                                   std::numeric_limits<double>::quiet_NaN()};

}  // namespace

std::vector<MessageMutator::Message*> MessageMutator::AllIn(Message* root) {
  std::vector<Message*> all = {root};
  for (size_t at = 0; at < all.size(); ++at) {
    Message* const message = all[at];
    const Reflection& reflection = *message->GetReflection();
    std::vector<const Field*> fields;
    reflection.ListFields(*message, &fields);
    for (const Field* field : fields) {
      if (field->cpp_type() != Field::CPPTYPE_MESSAGE || field->is_map()) {
        continue;
      }
      if (!field->is_repeated()) {
        all.push_back(reflection.MutableMessage(message, field));
        continue;
      }
      for (int i = 0; i < reflection.FieldSize(*message, field); ++i) {
        all.push_back(reflection.MutableRepeatedMessage(message, field, i));
      }
    }
  }
  return all;
}

void MessageMutator::Mutate(Message* message) {
  for (size_t changes = Below(4) + 1; changes > 0; --changes) {
    MutateOnce(message);
  }
}

void MessageMutator::CrossOver(const Message& from, Message* to) {
  const std::unique_ptr<Message> source(from.New());
  source->CopyFrom(from);
  std::vector<Message*> targets = AllIn(to);
  for (int tries = 0; tries < 8; ++tries) {
    Message* const target = targets[Below(targets.size())];
    const Descriptor& type = *target->GetDescriptor();
    if (type.field_count() == 0) continue;
    const Field* const field = type.field(Below(type.field_count()));
    if (field->cpp_type() != Field::CPPTYPE_MESSAGE || field->is_map()) {
      continue;
    }
    const Reflection& reflection = *target->GetReflection();
    if (!field->is_repeated()) {
      return CopyFrom(source.get(), reflection.MutableMessage(target, field));
    }
    if (reflection.FieldSize(*target, field) >= kMostElements) continue;
    return CopyFrom(source.get(), reflection.AddMessage(target, field));
  }
}

void MessageMutator::MutateOnce(Message* root) {
  std::vector<Message*> all = AllIn(root);
  Message* const message = all[Below(all.size())];
  const Descriptor& type = *message->GetDescriptor();
  if (type.field_count() == 0) return;
  const Field* field = type.field(Below(type.field_count()));
  std::vector<const Field*> set;
  message->GetReflection()->ListFields(*message, &set);
  if (!set.empty() && Below(2) == 0) field = set[Below(set.size())];
  if (field->is_map()) return;
  if (field->is_repeated()) return MutateRepeated(message, field, root);
  MutateSingular(message, field, root);
}

void MessageMutator::MutateRepeated(Message* message, const Field* field,
                                    Message* root) {
  const Reflection& reflection = *message->GetReflection();
  const int size = reflection.FieldSize(*message, field);
  const size_t choice = size == 0 ? 0 : Below(6);
  switch (choice) {
    case 0:
      if (size >= kMostElements) return;
      Append(message, field);
      return MutateValue(message, field, size, root);
    case 1:
      reflection.SwapElements(message, field, static_cast<int>(Below(size)),
                              size - 1);
      return reflection.RemoveLast(message, field);
    case 2:
      return reflection.SwapElements(message, field,
                                     static_cast<int>(Below(size)),
                                     static_cast<int>(Below(size)));
    default:
      return MutateValue(message, field, static_cast<int>(Below(size)), root);
  }
}

void MessageMutator::MutateSingular(Message* message, const Field* field,
                                    Message* root) {
  const Reflection& reflection = *message->GetReflection();
  if (Below(8) == 0) return reflection.ClearField(message, field);
  MutateValue(message, field, -1, root);
}

void MessageMutator::Append(Message* message, const Field* field) {
  const Reflection& reflection = *message->GetReflection();
  switch (field->cpp_type()) {
    case Field::CPPTYPE_MESSAGE:
      reflection.AddMessage(message, field);
      break;
    case Field::CPPTYPE_STRING:
      reflection.AddString(message, field, "");
      break;
    case Field::CPPTYPE_ENUM:
      reflection.AddEnumValue(message, field, 0);
      break;
    case Field::CPPTYPE_BOOL:
      reflection.AddBool(message, field, false);
      break;
    case Field::CPPTYPE_INT32:
      reflection.AddInt32(message, field, 0);
      break;
    case Field::CPPTYPE_INT64:
      reflection.AddInt64(message, field, 0);
      break;
    case Field::CPPTYPE_UINT32:
      reflection.AddUInt32(message, field, 0);
      break;
    case Field::CPPTYPE_UINT64:
      reflection.AddUInt64(message, field, 0);
      break;
    case Field::CPPTYPE_DOUBLE:
      reflection.AddDouble(message, field, 0);
      break;
    case Field::CPPTYPE_FLOAT:
      reflection.AddFloat(message, field, 0);
      break;
  }
}

void MessageMutator::MutateValue(Message* message, const Field* field,
                                 int index, Message* root) {
  const Reflection& reflection = *message->GetReflection();
  // Reads and writes the field, or its element, by functions of its type.
  const auto change = [&](auto get, auto set, auto get_repeated,
                          auto set_repeated, auto next) {
    if (index < 0) {
      return (reflection.*set)(message, field,
                               next((reflection.*get)(*message, field)));
    }
    (reflection.*set_repeated)(
        message, field, index,
        next((reflection.*get_repeated)(*message, field, index)));
  };
  const auto integer = [this](auto old) {
    return static_cast<decltype(old)>(NewInteger(static_cast<int64_t>(old)));
  };
  const auto real = [this](auto old) {
    return static_cast<decltype(old)>(NewDouble(old));
  };
  using R = Reflection;
  switch (field->cpp_type()) {
    case Field::CPPTYPE_MESSAGE:
      return CopyFrom(
          root, index < 0
                    ? reflection.MutableMessage(message, field)
                    : reflection.MutableRepeatedMessage(message, field, index));
    case Field::CPPTYPE_STRING: {
      const bool is_text = field->type() == Field::TYPE_STRING;
      return change(&R::GetString, &R::SetString, &R::GetRepeatedString,
                    &R::SetRepeatedString, [&](std::string old) {
                      return NewText(std::move(old), is_text, root);
                    });
    }
    case Field::CPPTYPE_ENUM:
      return change(
          &R::GetEnumValue, &R::SetEnumValue, &R::GetRepeatedEnumValue,
          &R::SetRepeatedEnumValue, [&](int old) {
            return Below(16) == 0 ? static_cast<int>(NewInteger(old))
                                  : static_cast<int>(Below(
                                        field->enum_type()->value_count()));
          });
    case Field::CPPTYPE_BOOL:
      return change(&R::GetBool, &R::SetBool, &R::GetRepeatedBool,
                    &R::SetRepeatedBool, [](bool old) { return !old; });
    case Field::CPPTYPE_INT32:
      return change(&R::GetInt32, &R::SetInt32, &R::GetRepeatedInt32,
                    &R::SetRepeatedInt32, integer);
    case Field::CPPTYPE_INT64:
      return change(&R::GetInt64, &R::SetInt64, &R::GetRepeatedInt64,
                    &R::SetRepeatedInt64, integer);
    case Field::CPPTYPE_UINT32:
      return change(&R::GetUInt32, &R::SetUInt32, &R::GetRepeatedUInt32,
                    &R::SetRepeatedUInt32, integer);
    case Field::CPPTYPE_UINT64:
      return change(&R::GetUInt64, &R::SetUInt64, &R::GetRepeatedUInt64,
                    &R::SetRepeatedUInt64, integer);
    case Field::CPPTYPE_DOUBLE:
      return change(&R::GetDouble, &R::SetDouble, &R::GetRepeatedDouble,
                    &R::SetRepeatedDouble, real);
    case Field::CPPTYPE_FLOAT:
      return change(&R::GetFloat, &R::SetFloat, &R::GetRepeatedFloat,
                    &R::SetRepeatedFloat, real);
  }
}

void MessageMutator::CopyFrom(Message* root, Message* to) {
  std::vector<const Message*> same;
  for (const Message* message : AllIn(root)) {
    if (message->GetDescriptor() == to->GetDescriptor() && message != to) {
      same.push_back(message);
    }
  }
  if (same.empty() || Below(4) == 0) return;
  const std::unique_ptr<Message> copy(to->New());
  copy->CopyFrom(*same[Below(same.size())]);
  to->CopyFrom(*copy);
}

int64_t MessageMutator::NewInteger(int64_t old) {
  switch (Below(4)) {
    case 0:
      return kEdges[Below(std::size(kEdges))];
    case 1:
      return static_cast<int64_t>(Below(12));
    case 2:
      return static_cast<int64_t>(static_cast<uint64_t>(old) + Below(9) - 4);
    default:
      LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(&old), sizeof(old),
                       sizeof(old));
      return old;
  }
}

double MessageMutator::NewDouble(double old) {
  if (Below(2) == 0) return kDoubleEdges[Below(std::size(kDoubleEdges))];
  LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(&old), sizeof(old), sizeof(old));
  return old;
}

std::string MessageMutator::TextIn(Message* root) {
  std::vector<std::string> texts;
  for (const Message* message : AllIn(root)) {
    const Reflection& reflection = *message->GetReflection();
    std::vector<const Field*> fields;
    reflection.ListFields(*message, &fields);
    for (const Field* field : fields) {
      if (field->type() != Field::TYPE_STRING) continue;
      if (!field->is_repeated()) {
        texts.push_back(reflection.GetString(*message, field));
        continue;
      }
      for (int i = 0; i < reflection.FieldSize(*message, field); ++i) {
        texts.push_back(reflection.GetRepeatedString(*message, field, i));
      }
    }
  }
  return texts.empty() ? "" : texts[Below(texts.size())];
}

std::string MessageMutator::NewText(std::string old, bool is_text,
                                    Message* root) {
  const size_t choice = Below(8);
  if (is_text && choice < 4) return TextIn(root);
  if (is_text && choice < 6 && !words_.empty()) {
    return std::string(words_[Below(words_.size())]);
  }
  if (choice == 7) return std::string(Below(2) == 0 ? 16 : 32, 'x');
  const size_t size = std::min(old.size(), kMostTextBytes);
  old.resize(kMostTextBytes);
  old.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(old.data()), size,
                              kMostTextBytes));
  // protobuf refuses texts that aren't UTF-8 before the server sees them.
  if (is_text) {
    for (char& byte : old) byte = static_cast<char>(byte & 0x7f);
  }
  return old;
}

}  // namespace convgrad::fuzz
