#include "server/rpc/calls/call_session.h"

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "backends/core/steady_now.h"
#include "proto/call_metadata.h"
#include "proto/codec/codec.h"

namespace convgrad {
namespace {

// Returns the number under `key`, `fallback` if there is none. Errors:
// kInvalidArgument if the text isn't a number or is negative.
absl::StatusOr<int64_t> NumberOf(const CallSession::Metadata& metadata,
                                 absl::string_view key, int64_t fallback) {
  const absl::string_view text = metadata(key);
  if (text.empty()) return fallback;
  int64_t number;
  if (absl::SimpleAtoi(text, &number) && number >= 0) return number;
  return OutOfRange(key, absl::StrCat("'", absl::CHexEscape(text), "'"),
                    "a number, at least 0");
}

// Owns the memory of a sum: the written bytes and the bytes of the addend.
struct SumBytes {
  std::shared_ptr<const KeptBytes> sum;
  std::shared_ptr<const KeptBytes> addend;
};

}  // namespace

absl::Status CheckCallId(absl::string_view field, absl::string_view id) {
  constexpr size_t kBytes = 16;
  if (id.size() == kBytes) return absl::OkStatus();
  return OutOfRange(field, absl::StrCat(id.size(), " bytes"),
                    absl::StrCat(kBytes, " random bytes"));
}

absl::Status CallSession::Enter(SessionTable* table, const Metadata& metadata,
                                const CallPermit& permit, bool only_computes) {
  const std::string id(metadata(kSessionKey));
  const bool is_change = !metadata(kSequenceKey).empty();
  if (id.empty() && is_change) {
    return Missing(kSessionKey, "nothing",
                   "the id of a session, which the change is of");
  }
  if (id.empty()) return absl::OkStatus();
  table_ = table;
  const SessionCaller caller = CallerOf(permit);
  // Finds the session before it reads other metadata, so that refusals contain
  // the session's number.
  const bool renews = is_change || metadata(kAttachedKey).empty();
  ASSIGN_OR_RETURN(use_, table->Find(caller, id,
                                     only_computes ? SessionTable::Right::kRead
                                                   : SessionTable::Right::kAll,
                                     renews));
  if (!is_change) {
    ASSIGN_OR_RETURN(after_, NumberOf(metadata, kAfterKey, 0));
    return absl::OkStatus();
  }
  ChangeId change;
  ASSIGN_OR_RETURN(change.epoch, NumberOf(metadata, kEpochKey, 0));
  ASSIGN_OR_RETURN(change.sequence, NumberOf(metadata, kSequenceKey, 0));
  ASSIGN_OR_RETURN(change.acknowledged,
                   NumberOf(metadata, kAcknowledgedKey, 0));
  change.call_id = std::string(metadata(kCallIdKey));
  RETURN_IF_ERROR(CheckCallId(kCallIdKey, change.call_id));
  change_ = std::move(change);
  return absl::OkStatus();
}

void CallSession::Await(absl::Time deadline, ChangeOrder::Decided decided,
                        std::function<void()> admit_early) {
  const absl::Time now = table_->now();
  const absl::Duration left = deadline - SteadyNow();
  const auto told =
      [this, decided = std::move(decided)](ChangeOrder::Decision decision) {
        if (decision.runs()) {
          runs_ = is_change();
          state_ = use_->state();
        }
        decided(std::move(decision));
      };
  ChangeOrder::Caller caller{now + left, told, std::move(admit_early)};
  waiter_ = is_change() ? use_->Arrive(*change_, now, std::move(caller))
                        : use_->AwaitNumber(after_, now, std::move(caller));
}

bool CallSession::Withdraw() {
  const uint64_t waiter = waiter_;
  return waiter != 0 && use_->Withdraw(waiter);
}

absl::Status CallSession::CheckId(const std::string& session_id,
                                  const std::string& path) const {
  if (!in_session()) {
    return Missing(path, absl::StrCat("no ", kSessionKey, " in the metadata"),
                   "the id of the session");
  }
  if (session_id.empty() || session_id == settings().id) {
    return absl::OkStatus();
  }
  return OutOfRange(path + ".session_id",
                    "another session than that of the call",
                    absl::StrCat("unset, or the id in ", kSessionKey));
}

absl::Status CallSession::CheckChange(const std::string& path) const {
  if (is_change()) return absl::OkStatus();
  return Missing(path, absl::StrCat("no ", kSequenceKey, " in the metadata"),
                 "a change of a session, which has one");
}

absl::Status CallSession::KeepTrainerState(const std::string& text,
                                           const std::string& path) {
  if (text.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckChange(path));
  if (std::ssize(text) > kMaxTrainerStateBytes) {
    return OutOfRange(path, absl::StrCat(text.size(), " bytes"),
                      absl::StrCat("at most ", kMaxTrainerStateBytes));
  }
  writes_.trainer_state = std::make_shared<const std::string>(text);
  return absl::OkStatus();
}

absl::StatusOr<KeptTensor> CallSession::Find(absl::string_view name,
                                             int64_t version,
                                             const std::string& path) const {
  const auto found = state_->tensors.find(name);
  if (found == state_->tensors.end()) {
    return NotFound(path,
                    absl::StrCat("'", absl::CHexEscape(name.substr(0, 255)),
                                 "', which the session doesn't keep"),
                    "the name of a kept tensor");
  }
  if (version == 0 || version == found->second.version) return found->second;
  return NotFound(path, absl::StrCat("version ", version),
                  absl::StrCat("0 or ", found->second.version, ", the newest"));
}

absl::StatusOr<TensorPlace> CallSession::Write(
    const std::string& name, const TensorDescriptor& descriptor,
    Reservation* paid) {
  ASSIGN_OR_RETURN(std::shared_ptr<KeptBytes> bytes,
                   table_->memory()->Take(*ByteSize(descriptor), paid));
  TensorPlace place;
  place.data = bytes->data();
  place.owner = bytes;
  place.is_kept = true;
  writes_.tensors[name] = KeptTensor{descriptor, std::move(bytes), 0};
  return place;
}

absl::StatusOr<TensorPlace> CallSession::Add(const std::string& name,
                                             const TensorDescriptor& descriptor,
                                             const std::string& path,
                                             Reservation* paid) {
  const auto old = state_->tensors.find(name);
  if (old != state_->tensors.end() && old->second.descriptor != descriptor) {
    return ShapeMismatch(
        path, absl::StrCat("'", name, "', ", ToString(old->second.descriptor)),
        absl::StrCat("a sum like the result, ", ToString(descriptor)));
  }
  ASSIGN_OR_RETURN(TensorPlace place, Write(name, descriptor, paid));
  if (old == state_->tensors.end()) return place;
  place.addend = reinterpret_cast<const float*>(old->second.bytes->data());
  place.owner = std::make_shared<SumBytes>(
      SumBytes{writes_.tensors[name]->bytes, old->second.bytes});
  return place;
}

v1::Tensor CallSession::Describe(const TensorDescriptor& descriptor,
                                 const std::string& name) const {
  v1::Tensor tensor = EncodeDescriptor(descriptor);
  tensor.mutable_kept()->set_tensor_id(name);
  tensor.mutable_kept()->set_version(state_->number + 1);
  return tensor;
}

absl::Status CallSession::Commit(ChangeOrder::Reply reply) {
  runs_ = false;
  // The next change may start within Commit and take its memory there, so the
  // tensors that this one has replaced must be free by then.
  state_.reset();
  ASSIGN_OR_RETURN(const int64_t number,
                   use_->Commit(writes_, std::move(reply), table_->now()));
  number_ = number;
  return absl::OkStatus();
}

std::optional<int64_t> CallSession::End(absl::Status* status) {
  if (!in_session()) return std::nullopt;
  writes_ = KeptWrites();
  state_.reset();
  if (std::exchange(runs_, false)) {
    *status = use_->Fail(*status, table_->now());
  }
  if (IsBusy(*status)) return std::nullopt;
  const int64_t number = number_ > 0 ? number_ : use_->state()->number;
  return number;
}

}  // namespace convgrad
