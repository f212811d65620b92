#include "server/memory/memory_budget.h"

#include <cassert>
#include <memory>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"

namespace convgrad {
MemoryBudget::MemoryBudget(int64_t capacity_bytes, int max_waiters,
                           Executor executor, double client_share, Taken taken)
    : capacity_bytes_(capacity_bytes),
      max_waiters_(max_waiters),
      client_share_(client_share),
      executor_(std::move(executor)),
      taken_(std::move(taken)) {}

absl::Status MemoryBudget::CheckFits(int64_t bytes) const {
  if (bytes <= capacity_bytes_) return absl::OkStatus();
  return LimitExceeded("server.memory",
                       absl::StrCat("a call of ", bytes, " bytes"),
                       absl::StrCat("at most ", capacity_bytes(),
                                    ", the server's memory budget for calls"));
}

absl::StatusOr<Reservation> MemoryBudget::TryReserve(int64_t bytes,
                                                     const Holder& holder) {
  assert(bytes >= 0);
  RETURN_IF_ERROR(CheckFits(bytes));
  ClientAccount* account = nullptr;
  {
    MutexLock lock(&mutex_);
    if (bytes > 0) account = AccountOf(holder.client);
    RETURN_IF_ERROR(Take(bytes, holder.held_bytes, account,
                         holder.has_begun || !OthersWait(account)));
  }
  taken_();
  return Reservation(this, bytes, account);
}

ClientAccount* MemoryBudget::AccountOf(const std::string& client) {
  if (client.empty() || client_share_ >= 1) return nullptr;
  return &accounts_.try_emplace(client, ClientAccount{client}).first->second;
}

void MemoryBudget::Book(ClientAccount* account, int64_t bytes, int waiters) {
  if (account == nullptr) return;
  account->bytes += bytes;
  account->waiters += waiters;
  if (account->bytes > 0 || account->waiters > 0) return;
  accounts_.erase(accounts_.find(account->client));
}

absl::Status MemoryBudget::CheckQueue(const Waiters& waiters,
                                      const ClientAccount* account) const {
  if (static_cast<int>(waiters.size()) >= max_waiters_) {
    return Busy("server.memory",
                absl::StrCat(waiters.size(), " calls waiting for memory"),
                absl::StrCat("fewer than ", max_waiters_));
  }
  const int of_one = (max_waiters_ + 1) / 2;
  if (account == nullptr || account->waiters < of_one) return absl::OkStatus();
  return Busy("server.memory",
              absl::StrCat(account->waiters,
                           " calls of this client waiting for memory"),
              absl::StrCat("fewer than ", of_one));
}

absl::StatusOr<uint64_t> MemoryBudget::Wait(const Claim& claim,
                                            Granted granted) {
  assert(claim.bytes >= 0);
  RETURN_IF_ERROR(CheckFits(claim.bytes));
  uint64_t id;
  ClientAccount* account;
  Granted at_once;
  Waiters grantable;
  {
    MutexLock lock(&mutex_);
    id = next_id_++;
    account = AccountOf(claim.client);
    if (NobodyWaits() && HasRoom(claim.bytes) &&
        (account == nullptr || MayHave(account->bytes, claim.bytes))) {
      at_once = std::move(granted);
      used_bytes_ += claim.bytes;
      Book(account, claim.bytes, 0);
    } else {
      Waiters& waiters = waiters_[IndexOf(claim.priority)];
      absl::Status place = CheckQueue(waiters, account);
      Book(account, 0, place.ok() ? 1 : 0);
      RETURN_IF_ERROR(place);
      waiters.push_back(
          {id, claim.bytes, claim.deadline, std::move(granted), account});
      // All other waiters may wait for calls of their own clients.
      grantable = TakeGrantable();
    }
  }
  if (at_once) {
    taken_();
    at_once(Reservation(this, claim.bytes, account));
  } else {
    Grant(std::move(grantable));
  }
  return id;
}

bool MemoryBudget::CancelWait(uint64_t id) {
  Waiters cancelled;
  Waiters grantable;
  {
    MutexLock lock(&mutex_);
    for (Waiters& waiters : waiters_) {
      const auto found =
          std::find_if(waiters.begin(), waiters.end(),
                       [&](const Waiter& waiter) { return waiter.id == id; });
      if (found == waiters.end()) continue;
      Book(found->account, 0, -1);
      cancelled.splice(cancelled.end(), waiters, found);
    }
    if (cancelled.empty()) return false;
    // The cancelled waiter may have been a large one that blocked smaller ones.
    grantable = TakeGrantable();
  }
  Grant(std::move(grantable));
  return true;
}

void MemoryBudget::ExpireWaiters(absl::Time now) {
  EndWaiters([now](const Waiter& waiter) {
    if (waiter.deadline > now) return absl::OkStatus();
    return DeadlineExceeded("deadline", "passed while waiting for memory", "");
  });
}

void MemoryBudget::SetCapacity(int64_t bytes) {
  {
    MutexLock lock(&mutex_);
    capacity_bytes_ = bytes;
  }
  EndWaiters([this](const Waiter& waiter) { return CheckFits(waiter.bytes); });
}

void MemoryBudget::EndWaiters(
    absl::FunctionRef<absl::Status(const Waiter&)> check) {
  Waiters ended;
  Waiters grantable;
  {
    MutexLock lock(&mutex_);
    for (Waiters& waiters : waiters_) {
      for (auto waiter = waiters.begin(); waiter != waiters.end();) {
        const auto next = std::next(waiter);
        if (!check(*waiter).ok()) {
          Book(waiter->account, 0, -1);
          ended.splice(ended.end(), waiters, waiter);
        }
        waiter = next;
      }
    }
    grantable = TakeGrantable();
  }
  // Only this thread changes the capacity, so `check` returns the same again.
  for (Waiter& waiter : ended) waiter.granted(check(waiter));
  Grant(std::move(grantable));
}

Priority MemoryBudget::NextPriority() {
  const auto is_ready = [this](const Waiter& waiter) {
    return !IsHeldBack(waiter);
  };
  return round_robin_.Next(
      absl::c_any_of(waiters_[IndexOf(Priority::kBatch)], is_ready),
      absl::c_any_of(waiters_[IndexOf(Priority::kInteractive)], is_ready));
}

bool MemoryBudget::MayGo(const Waiter& waiter, int64_t* allowance) {
  ClientAccount* const account = waiter.account;
  const bool is_held_back = IsHeldBack(waiter);
  const int64_t own_allowance = account != nullptr && account->look == looks_
                                    ? account->allowance
                                    : waiter.bytes;
  if (!is_held_back && HasRoom(waiter.bytes) &&
      waiter.bytes <= std::min(*allowance, own_allowance)) {
    return true;
  }
  if (is_held_back) {
    account->look = looks_;
    account->allowance = std::min(own_allowance, waiter.Allowance());
  } else {
    *allowance = std::min(*allowance, waiter.Allowance());
  }
  return false;
}

bool MemoryBudget::TakeNext(Waiters* grantable) {
  ++looks_;
  int64_t allowance = capacity_bytes_;
  const Priority next = NextPriority();
  const Priority other =
      next == Priority::kBatch ? Priority::kInteractive : Priority::kBatch;
  std::vector<Waiter*> passed;
  for (Priority priority : {next, other}) {
    Waiters& waiters = waiters_[IndexOf(priority)];
    for (auto waiter = waiters.begin(); waiter != waiters.end(); ++waiter) {
      if (!MayGo(*waiter, &allowance)) {
        passed.push_back(&*waiter);
        continue;
      }
      for (Waiter* one : passed) {
        if (IsHeldBack(*one) && one->account != waiter->account) continue;
        one->passed_bytes += waiter->bytes;
      }
      round_robin_.Take(priority, !waiters_[IndexOf(Priority::kBatch)].empty());
      used_bytes_ += waiter->bytes;
      Book(waiter->account, waiter->bytes, -1);
      grantable->splice(grantable->end(), waiters, waiter);
      return true;
    }
  }
  return false;
}

MemoryBudget::Waiters MemoryBudget::TakeGrantable() {
  Waiters grantable;
  while (!NobodyWaits() && TakeNext(&grantable)) {
  }
  return grantable;
}

void MemoryBudget::Grant(Waiters waiters) {
  if (waiters.empty()) return;
  // Shared, because a std::function must be copyable.
  auto shared = std::make_shared<Waiters>(std::move(waiters));
  executor_([this, shared] {
    taken_();
    for (Waiter& waiter : *shared) {
      waiter.granted(Reservation(this, waiter.bytes, waiter.account));
    }
  });
}

bool MemoryBudget::OthersWait(const ClientAccount* account) const {
  return absl::c_any_of(waiters_, [&](const Waiters& waiters) {
    return absl::c_any_of(waiters, [&](const Waiter& waiter) {
      return waiter.account != account && !IsHeldBack(waiter);
    });
  });
}

absl::Status MemoryBudget::Take(int64_t more, int64_t held,
                                ClientAccount* account, bool may_exceed) {
  absl::Status refusal;
  if (!HasRoom(more)) {
    const int64_t free = std::max<int64_t>(capacity_bytes_ - used_bytes_, 0);
    refusal = Busy("server.memory", absl::StrCat(free, " bytes free"), more);
  } else if (account != nullptr && !may_exceed &&
             !MayHave(account->bytes - held, held + more)) {
    refusal = Busy("server.memory",
                   absl::StrCat(account->bytes, " bytes of this client, and ",
                                more, " more"),
                   absl::StrCat("at most ", client_bytes(),
                                ", the server's --max_client_share"));
  } else {
    used_bytes_ += more;
  }
  Book(account, refusal.ok() ? more : 0, 0);
  return refusal;
}

absl::Status MemoryBudget::TryGrow(int64_t more, int64_t held,
                                   ClientAccount* account) {
  {
    MutexLock lock(&mutex_);
    RETURN_IF_ERROR(Take(more, held, account, /*may_exceed=*/false));
  }
  taken_();
  return absl::OkStatus();
}

void MemoryBudget::GiveBack(int64_t free, int64_t owned,
                            ClientAccount* account) {
  Waiters grantable;
  {
    MutexLock lock(&mutex_);
    used_bytes_ -= free;
    Book(account, -owned, 0);
    grantable = TakeGrantable();
  }
  Grant(std::move(grantable));
}

}  // namespace convgrad
