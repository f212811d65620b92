#include "server/durable_sessions.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "server/rpc/calls/reply_bytes.h"
#include "spdlog/spdlog.h"

namespace convgrad {
namespace {

absl::Status BadFolder(const std::string& folder, const absl::Status& why) {
  return InvalidField(Reason::kBackendUnavailable, "--state_dir",
                      absl::StrCat("'", folder, "': ", why.message()),
                      absl::IsResourceExhausted(why)
                          ? "space for one small file"
                          : "a folder that this server alone can write");
}

}  // namespace

absl::StatusOr<std::unique_ptr<DurableSessions>> DurableSessions::Start(
    const Config& config, const MachineFacts& facts, SessionTable* sessions) {
  if (config.state_dir.empty()) return nullptr;
  absl::StatusOr<std::unique_ptr<SnapshotStore>> store =
      SnapshotStore::Open(config.state_dir, PosixFiles());
  if (!store.ok()) return BadFolder(config.state_dir, store.status());
  auto durable = std::make_unique<DurableSessions>(*std::move(store), config,
                                                   facts, sessions);
  const absl::Status added = durable->AddStored();
  if (!added.ok()) return BadFolder(config.state_dir, added);
  return durable;
}

DurableSessions::DurableSessions(std::unique_ptr<SnapshotStore> store,
                                 const Config& config,
                                 const MachineFacts& facts,
                                 SessionTable* sessions)
    : sessions_(sessions),
      store_(std::move(store)),
      snapshotter_(
          sessions, store_.get(),
          {config.snapshot_interval,
           {BytesOfReply, ReplyOver},
           [this](const std::string& client, std::function<void()> task) {
             loader_.Post(std::move(task), client);
           },
           facts}) {
  sessions->SetArchive(&snapshotter_);
}

absl::Status DurableSessions::AddStored() {
  ASSIGN_OR_RETURN(const std::vector<SnapshotEntry> entries, store_->List());
  int added = 0;
  for (const SnapshotEntry& entry : entries) {
    const std::string handle = entry.key.substr(0, kHandleDigits);
    absl::Status status = entry.status;
    for (const NamedEntry& named : entry.named) {
      if (named.status.ok()) continue;
      spdlog::error("session {}: the snapshot '{}' is damaged: {}", handle,
                    named.name, std::string(named.status.message()));
    }
    if (status.ok()) {
      status = sessions_->AddStored(StoredOf(entry));
      if (absl::IsResourceExhausted(status)) return status;
    }
    if (status.ok()) {
      ++added;
      continue;
    }
    const std::string why(status.message());
    spdlog::error("session {} is damaged: {}", handle, why);
    sessions_->AddBroken(entry.key,
                         MakeError(absl::StatusCode::kDataLoss,
                                   {Reason::kMalformed, "snapshot", why,
                                    "one that this server can read"}));
  }
  spdlog::info("{} sessions on disk", added);
  return absl::OkStatus();
}

void DurableSessions::AddReadings(Readings* all) const {
  const Snapshotter::Counts counts = snapshotter_.counts();
  for (const auto& [outcome, count] :
       {std::pair("written", counts.written), {"failed", counts.failed}}) {
    all->Counter("convgrad_snapshots_total", "Snapshots of durable sessions.",
                 count, {{"outcome", outcome}});
  }
  all->Counter("convgrad_snapshot_seconds_total", "Time of writing snapshots.",
               absl::ToDoubleSeconds(counts.time));
  all->Counter("convgrad_snapshot_bytes_total",
               "Bytes of the sessions in snapshots.", counts.bytes);
  const absl::Time now = sessions_->now();
  absl::Duration undurable_age;
  int64_t on_disk = 0;
  for (const auto& session : sessions_->DurableSessions()) {
    on_disk += session->info().on_disk ? 1 : 0;
    const absl::Time since = session->changed_since();
    if (since == absl::InfiniteFuture()) continue;
    undurable_age = std::max(undurable_age, now - since);
  }
  all->Gauge("convgrad_undurable_age_seconds",
             "Age of the oldest change that isn't on disk yet.",
             absl::ToDoubleSeconds(undurable_age));
  all->Gauge("convgrad_sessions_on_disk",
             "Durable sessions that aren't in memory.", on_disk);
}

}  // namespace convgrad
