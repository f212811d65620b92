#include "server/durability/image_conversion.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "proto/codec/program_codec.h"

namespace convgrad {
namespace {

ImageBytes ShareText(std::shared_ptr<const std::string> text) {
  const absl::Span<const std::byte> bytes(
      reinterpret_cast<const std::byte*>(text->data()), text->size());
  return {std::move(text), bytes};
}

absl::string_view View(const ImageBytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.bytes.data()),
          bytes.bytes.size()};
}

absl::Status Damaged(const std::string& found, const std::string& expected) {
  return MakeError(absl::StatusCode::kDataLoss,
                   {Reason::kMalformed, "snapshot", found, expected});
}

// Gives an error of the store the detail that clients expect.
absl::Status Explain(const absl::Status& status) {
  if (status.ok() || DetailOf(status)) return status;
  absl::StatusCode code = absl::StatusCode::kInternal;
  Reason reason = Reason::kInternal;
  if (absl::IsDataLoss(status) || absl::IsNotFound(status)) {
    code = absl::StatusCode::kDataLoss;
    reason = Reason::kMalformed;
  } else if (absl::IsFailedPrecondition(status) ||
             absl::IsUnimplemented(status)) {
    code = absl::StatusCode::kFailedPrecondition;
    reason = Reason::kUnsupported;
  }
  return MakeError(code, {reason, "snapshot", std::string(status.message()),
                          "one that this server can read"});
}

absl::StatusOr<KeptTensor> TensorOf(const ImageTensor& tensor) {
  const auto size = std::ssize(tensor.data.bytes);
  if (ByteSize(tensor.descriptor) != size) {
    return Damaged(
        absl::StrCat("tensor '", tensor.name, "' of ", size, " bytes"),
        ToString(tensor.descriptor));
  }
  return KeptTensor{
      tensor.descriptor,
      std::static_pointer_cast<const KeptBytes>(tensor.data.owner),
      tensor.version};
}

absl::StatusOr<std::shared_ptr<const KeptProgram>> ProgramOf(
    const ImageProgram& program, KeptMemory* memory) {
  const auto size = std::ssize(program.message.bytes);
  const int64_t bytes = size * kMemoryPerProgramByte;
  auto kept = std::make_shared<KeptProgram>();
  ASSIGN_OR_RETURN(kept->booking, memory->Book(bytes, bytes, nullptr));
  absl::StatusOr<Program> parsed = DeserializeProgram(View(program.message));
  if (!parsed.ok()) {
    return Damaged(absl::StrCat("program '", program.name,
                                "': ", parsed.status().message()),
                   "a program of this version");
  }
  kept->program = std::make_shared<const Program>(*std::move(parsed));
  return kept;
}

absl::StatusOr<std::shared_ptr<const KeptState>> StateOf(
    const SessionImage& image, KeptMemory* memory) {
  KeptWrites writes;
  for (const ImageTensor& tensor : image.tensors) {
    ASSIGN_OR_RETURN(writes.tensors[tensor.name], TensorOf(tensor));
  }
  for (const ImageProgram& program : image.programs) {
    ASSIGN_OR_RETURN(writes.programs[program.name], ProgramOf(program, memory));
  }
  if (!image.head.trainer_state().empty()) {
    writes.trainer_state =
        std::make_shared<const std::string>(image.head.trainer_state());
  }
  KeptState state = After(KeptState(), writes);
  state.number = image.head.number();
  state.trainer_state_number = state.number;
  MachineFacts facts;
  for (const snapshots::Fact& fact : image.head.computed_by()) {
    facts[fact.name()] = fact.text();
  }
  state.computed_by = std::make_shared<const MachineFacts>(std::move(facts));
  for (const ImageTensor& tensor : image.tensors) {
    state.tensors.find(tensor.name)->second.version = tensor.version;
  }
  ASSIGN_OR_RETURN(Reservation paid, memory->memory()->budget.TryReserve(
                                         state.totals.entry_bytes));
  state.paid = std::make_shared<const Reservation>(std::move(paid));
  return std::make_shared<const KeptState>(std::move(state));
}

absl::StatusOr<WritableBytes> Allocate(KeptMemory* memory, int64_t size) {
  ASSIGN_OR_RETURN(std::shared_ptr<KeptBytes> bytes,
                   memory->Take(size, nullptr));
  std::byte* const data = bytes->data();
  return WritableBytes{std::shared_ptr<const KeptBytes>(std::move(bytes)),
                       data};
}

absl::Status AddReplies(const SessionCapture& capture,
                        const ReplyFormat& replies, SessionImage* image) {
  for (const ChangeOrder::Unacknowledged& change : capture.replies) {
    ImageReply reply;
    reply.number = change.number;
    reply.call_id = change.call_id;
    if (change.reply != nullptr) {
      ASSIGN_OR_RETURN(const SharedBytes bytes, replies.write(change.reply));
      reply.message = {bytes.owner,
                       absl::MakeConstSpan(bytes.data, bytes.size)};
    }
    image->replies.push_back(std::move(reply));
  }
  return absl::OkStatus();
}

ChangeOrder::Epochs EpochsOf(const snapshots::Session& head) {
  return {head.epoch(), head.first_epoch(), head.resumed_by()};
}

}  // namespace

SessionTable::StoredSession StoredOf(const SnapshotEntry& entry) {
  SessionTable::StoredSession stored;
  const snapshots::Session& head = entry.head;
  stored.settings.id = head.id();
  stored.settings.name = head.name();
  stored.settings.client = head.client();
  stored.settings.owner = head.owner();
  stored.settings.readers = {head.readers().begin(), head.readers().end()};
  stored.settings.lease = absl::Nanoseconds(head.lease_nanoseconds());
  stored.settings.quota_bytes = head.quota_bytes();
  stored.settings.durable = true;
  stored.settings.open_id = head.open_id();
  stored.number = head.number();
  stored.epochs = EpochsOf(head);
  stored.totals.tensors = entry.tensors;
  stored.totals.quota_bytes = entry.bytes;
  for (const NamedEntry& named : entry.named) {
    stored.snapshots[named.name] = {named.number, named.bytes};
  }
  return stored;
}

absl::StatusOr<CapturedImage> Capture(const KeptSession::Settings& settings,
                                      const SessionCapture& capture,
                                      const MachineFacts& facts,
                                      const ReplyFormat& replies,
                                      KeptMemory* memory) {
  const KeptState& state = *capture.state;
  CapturedImage captured;
  snapshots::Session& head = captured.image.head;
  head.set_id(settings.id);
  head.set_open_id(settings.open_id);
  head.set_name(settings.name);
  head.set_client(settings.client);
  head.set_owner(settings.owner);
  head.mutable_readers()->Assign(settings.readers.begin(),
                                 settings.readers.end());
  head.set_lease_nanoseconds(absl::ToInt64Nanoseconds(settings.lease));
  head.set_quota_bytes(settings.quota_bytes);
  head.set_number(state.number);
  head.set_epoch(capture.epochs.newest);
  head.set_first_epoch(capture.epochs.first);
  head.set_resumed_by(capture.epochs.resumed_by);
  if (state.trainer_state != nullptr) {
    head.set_trainer_state(*state.trainer_state);
  }
  const MachineFacts& by = state.computed_by ? *state.computed_by : facts;
  for (const auto& [name, text] : by) {
    snapshots::Fact& fact = *head.add_computed_by();
    fact.set_name(name);
    fact.set_text(text);
  }
  for (const auto& [name, tensor] : state.tensors) {
    captured.image.tensors.push_back(
        {name,
         tensor.descriptor,
         tensor.version,
         {tensor.bytes,
          absl::MakeConstSpan(tensor.bytes->data(),
                              static_cast<size_t>(tensor.bytes->size()))}});
  }
  for (const auto& [name, program] : state.programs) {
    captured.image.programs.push_back(
        {name, ShareText(std::make_shared<const std::string>(
                   SerializeProgram(*program->program)))});
  }
  int64_t reply_bytes = 0;
  for (const auto& change : capture.replies) reply_bytes += change.reply_bytes;
  ASSIGN_OR_RETURN(captured.paid,
                   memory->memory()->budget.TryReserve(reply_bytes));
  RETURN_IF_ERROR(AddReplies(capture, replies, &captured.image));
  return captured;
}

absl::StatusOr<SessionCapture> LoadCapture(SnapshotStore* store,
                                           const std::string& hash,
                                           const ReplyFormat& replies,
                                           KeptMemory* memory,
                                           std::vector<std::string>* broken) {
  absl::StatusOr<LoadedSnapshot> loaded = store->Load(
      hash, [memory](int64_t size) { return Allocate(memory, size); });
  if (!loaded.ok()) return Explain(loaded.status());
  *broken = std::move(loaded->broken);
  const SessionImage& image = loaded->image;
  SessionCapture capture;
  capture.epochs = EpochsOf(image.head);
  ASSIGN_OR_RETURN(capture.state, StateOf(image, memory));
  int64_t before = 0;
  for (const ImageReply& reply : image.replies) {
    if (reply.number <= before || reply.number > image.head.number()) {
      return Damaged(absl::StrCat("reply ", reply.number),
                     absl::StrCat("one after ", before, ", at most ",
                                  image.head.number()));
    }
    before = reply.number;
    ChangeOrder::Unacknowledged change{reply.number, reply.call_id, nullptr, 0};
    if (reply.message) {
      const auto& [owner, bytes] = *reply.message;
      change.reply_bytes = std::ssize(bytes);
      change.reply = replies.read({bytes.data(), change.reply_bytes, owner});
    }
    capture.replies.push_back(std::move(change));
  }
  return capture;
}

absl::StatusOr<std::shared_ptr<const KeptState>> LoadNamedState(
    SnapshotStore* store, const std::string& hash, const std::string& name,
    KeptMemory* memory) {
  const absl::StatusOr<SessionImage> image = store->FolderOf(hash)->LoadNamed(
      name, [memory](int64_t size) { return Allocate(memory, size); });
  if (absl::IsNotFound(image.status())) return image.status();
  absl::Status status = Explain(image.status());
  if (image.ok()) {
    auto state = StateOf(*image, memory);
    if (state.ok()) return state;
    status = state.status();
  }
  if (!absl::IsDataLoss(status)) return status;
  // Another field than that of a session without any intact snapshot.
  return MakeError(
      absl::StatusCode::kDataLoss,
      {Reason::kMalformed, "name",
       absl::StrCat("'", name, "': ", status.message()),
       "another snapshot: this one is damaged, and the session is unchanged"});
}

}  // namespace convgrad
