// `Running` is a table of sessions with the snapshotter that writes them, for
// tests.
#pragma once

#include <functional>
#include <future>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/durability/snapshotter.h"
#include "tests/server/durability/stored_table.h"

namespace convgrad {

inline const SessionCaller kAda{"ada", true, false};

// A server's part with its snapshotter. Loads run at once.
struct Running : StoredTable {
  explicit Running(FileSystem* files, absl::Duration interval = absl::Hours(24))
      : StoredTable(files),
        snapshotter(&table, store.get(),
                    {interval, TextReplies(),
                     [](const std::string& /*client*/,
                        const std::function<void()>& task) { task(); }}) {
    table.SetArchive(&snapshotter);
  }

  // Returns the status that `start` gives its argument.
  static absl::Status StatusOf(
      const std::function<void(Snapshotter::Done)>& start) {
    std::promise<absl::Status> told;
    start([&](const absl::Status& status) { told.set_value(status); });
    return told.get_future().get();
  }
  absl::Status Save(const SessionUse& use) {
    return StatusOf([&](auto done) { snapshotter.Save(use.session(), done); });
  }
  absl::Status Keep(const SessionUse& use, const std::string& name) {
    return StatusOf(
        [&](auto done) { snapshotter.Keep(use.session(), name, done); });
  }
  absl::Status Drop(const SessionUse& use, const std::string& name) {
    return StatusOf(
        [&](auto done) { snapshotter.Drop(use.session(), name, done); });
  }
  absl::Status Close(const SessionUse& use) {
    return StatusOf(
        [&](auto done) { table.Close(kAda, use->settings().id, 0, done); });
  }
  // Returns the value of the tensor "w" in the snapshot.
  absl::StatusOr<float> Named(const SessionUse& use, const std::string& name) {
    absl::StatusOr<float> value = absl::UnknownError("not told");
    snapshotter.LoadNamed(use.session(), name, [&](const auto& state) {
      if (state.ok()) {
        value = ValueOf(**state, "w");
      } else {
        value = state.status();
      }
    });
    return value;
  }

  Snapshotter snapshotter;
};

}  // namespace convgrad
