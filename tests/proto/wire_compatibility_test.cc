// Compares the messages with the committed descriptor set: existing fields must
// not change, and additions are allowed. proto/README.md says how to renew the
// set.
#include <fstream>
#include <string>

#include "convgrad/v1/error.pb.h"
#include "convgrad/v1/service.pb.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::FileDescriptorSet;
using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;

// `Comparison` collects every incompatibility of `now` with `before`.
class Comparison {
 public:
  explicit Comparison(const DescriptorPool& now) : now_(now) {}

  void CompareFile(const FileDescriptor& before) {
    for (int i = 0; i < before.message_type_count(); ++i) {
      CompareMessage(*before.message_type(i));
    }
    for (int i = 0; i < before.enum_type_count(); ++i) {
      CompareEnum(*before.enum_type(i));
    }
    for (int i = 0; i < before.service_count(); ++i) {
      CompareService(*before.service(i));
    }
  }

  const std::vector<std::string>& breaks() const { return breaks_; }

 private:
  void Require(bool same, const std::string& what) {
    if (!same) breaks_.push_back(what);
  }

  void CompareMessage(const Descriptor& before) {
    const Descriptor* now = now_.FindMessageTypeByName(before.full_name());
    Require(now != nullptr, "removed " + before.full_name());
    if (now == nullptr) return;
    for (int i = 0; i < before.field_count(); ++i) {
      const FieldDescriptor* field =
          now->FindFieldByNumber(before.field(i)->number());
      Require(field != nullptr, "removed " + before.field(i)->full_name());
      if (field != nullptr) CompareField(*before.field(i), *field);
    }
    for (int i = 0; i < before.nested_type_count(); ++i) {
      CompareMessage(*before.nested_type(i));
    }
    for (int i = 0; i < before.enum_type_count(); ++i) {
      CompareEnum(*before.enum_type(i));
    }
  }

  void CompareField(const FieldDescriptor& before, const FieldDescriptor& now) {
    const std::string& name = before.full_name();
    Require(before.name() == now.name(), "renamed " + name);
    Require(before.type() == now.type(), "changed the type of " + name);
    Require(TypeName(before) == TypeName(now), "changed the type of " + name);
    Require(before.label() == now.label(), "changed the label of " + name);
    Require(before.has_presence() == now.has_presence(),
            "changed the presence of " + name);
    Require(OneofName(before) == OneofName(now),
            "moved " + name + " to another oneof");
  }

  static std::string TypeName(const FieldDescriptor& field) {
    if (field.message_type() != nullptr)
      return field.message_type()->full_name();
    if (field.enum_type() != nullptr) return field.enum_type()->full_name();
    return "";
  }

  static std::string OneofName(const FieldDescriptor& field) {
    const auto* oneof = field.real_containing_oneof();
    return oneof == nullptr ? "" : oneof->name();
  }

  void CompareEnum(const EnumDescriptor& before) {
    const EnumDescriptor* now = now_.FindEnumTypeByName(before.full_name());
    Require(now != nullptr, "removed " + before.full_name());
    if (now == nullptr) return;
    for (int i = 0; i < before.value_count(); ++i) {
      const auto* value = now->FindValueByName(before.value(i)->name());
      Require(value != nullptr && value->number() == before.value(i)->number(),
              "changed " + before.value(i)->full_name());
    }
  }

  void CompareService(const ServiceDescriptor& before) {
    const ServiceDescriptor* now = now_.FindServiceByName(before.full_name());
    Require(now != nullptr, "removed " + before.full_name());
    if (now == nullptr) return;
    for (int i = 0; i < before.method_count(); ++i) {
      const MethodDescriptor& method = *before.method(i);
      const MethodDescriptor* other = now->FindMethodByName(method.name());
      Require(other != nullptr &&
                  other->input_type()->full_name() ==
                      method.input_type()->full_name() &&
                  other->output_type()->full_name() ==
                      method.output_type()->full_name() &&
                  other->client_streaming() == method.client_streaming() &&
                  other->server_streaming() == method.server_streaming(),
              "changed " + method.full_name());
    }
  }

  const DescriptorPool& now_;
  std::vector<std::string> breaks_;
};

FileDescriptorSet Baseline() {
  std::ifstream file(CONVGRAD_WIRE_BASELINE, std::ios::binary);
  FileDescriptorSet files;
  EXPECT_TRUE(files.ParseFromIstream(&file));
  return files;
}

std::vector<std::string> BreaksBetween(const FileDescriptorSet& before,
                                       const DescriptorPool& now) {
  DescriptorPool pool;
  Comparison comparison(now);
  for (const auto& file : before.file()) {
    const FileDescriptor* built = pool.BuildFile(file);
    EXPECT_NE(built, nullptr) << file.name();
    if (built != nullptr) comparison.CompareFile(*built);
  }
  return comparison.breaks();
}

// Returns the generated pool. It contains a file only when its code is linked
// and used.
const DescriptorPool& Built() {
  v1::ErrorDetail::descriptor();
  v1::ConvBackwardRequest::descriptor();
  return *DescriptorPool::generated_pool();
}

TEST(WireCompatibilityTest, KeepsEverythingThatWasPromised) {
  const FileDescriptorSet baseline = Baseline();
  EXPECT_GE(baseline.file_size(), 5);
  for (const std::string& difference : BreaksBetween(baseline, Built())) {
    ADD_FAILURE() << difference;
  }
}

TEST(WireCompatibilityTest, SeesEachKindOfBreak) {
  const auto breaks_after = [](auto change) {
    FileDescriptorSet before = Baseline();
    for (auto& file : *before.mutable_file()) {
      for (auto& message : *file.mutable_message_type()) {
        if (message.name() == "Tensor") change(&message);
      }
    }
    return BreaksBetween(before, Built()).size();
  };
  EXPECT_EQ(breaks_after([](auto*) {}), 0u);
  EXPECT_EQ(breaks_after(
                [](auto* tensor) { tensor->mutable_field(0)->set_number(77); }),
            1u);
  EXPECT_EQ(breaks_after([](auto* tensor) {
              tensor->mutable_field(2)->set_type(
                  google::protobuf::FieldDescriptorProto::TYPE_SINT64);
            }),
            1u);
  EXPECT_EQ(breaks_after([](auto* tensor) {
              tensor->mutable_field(2)->set_name("block");
              tensor->mutable_field(2)->clear_json_name();
            }),
            1u);
  // A field that doesn't exist yet is an addition.
  EXPECT_EQ(breaks_after([](auto* tensor) {
              tensor->mutable_field()->DeleteSubrange(2, 1);
            }),
            0u);
}

TEST(WireCompatibilityTest, PutsPayloadsLast) {
  for (const Descriptor* message : {v1::ConvForwardRequest::descriptor(),
                                    v1::ConvBackwardRequest::descriptor(),
                                    v1::ConvForwardResponse::descriptor(),
                                    v1::ConvBackwardResponse::descriptor(),
                                    v1::ConvStreamRequest::descriptor(),
                                    v1::ConvStreamResponse::descriptor()}) {
    const FieldDescriptor* payloads = message->FindFieldByName("payloads");
    ASSERT_NE(payloads, nullptr) << message->full_name();
    EXPECT_EQ(payloads->number(), FieldDescriptor::kMaxNumber);
    EXPECT_EQ(payloads->type(), FieldDescriptor::TYPE_BYTES);
    EXPECT_TRUE(payloads->is_repeated());
  }
}

}  // namespace
}  // namespace convgrad
