// `SessionArchive` keeps durable sessions on disk.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/sessions/session.h"

namespace convgrad {

// The functions return at once; another thread does the work. Thread-safe.
class SessionArchive {
 public:
  using Done = std::function<void(const absl::Status&)>;
  using Loaded = std::function<void(
      absl::StatusOr<std::shared_ptr<const KeptState>> state)>;

  virtual ~SessionArchive() = default;

  // Loads the content of a session that is only on disk, and calls its Restore
  // or FailToRestore once.
  virtual void Load(const std::shared_ptr<KeptSession>& session) = 0;
  // Frees what the archive remembers of a session whose content is only on
  // disk.
  virtual void Forget(const std::shared_ptr<KeptSession>& session) = 0;
  // Writes the newest capture of the session, unless it is on disk already.
  // Then calls `done` once.
  virtual void Save(const std::shared_ptr<KeptSession>& session, Done done) = 0;
  // Saves the session, and keeps the snapshot under `name` in place of the one
  // that has the name. Then calls `done` once.
  virtual void Keep(const std::shared_ptr<KeptSession>& session,
                    const std::string& name, Done done) = 0;
  // Loads the snapshot of this name beside the session, and calls `done` once.
  // The state has no tapes; its number is the snapshot's.
  // Errors: kNotFound; kDataLoss; kResourceExhausted if there is no memory.
  virtual void LoadNamed(const std::shared_ptr<KeptSession>& session,
                         const std::string& name, Loaded done) = 0;
  // Saves the session, drops the snapshot of this name, if there is one, and
  // calls `done` once.
  virtual void Drop(const std::shared_ptr<KeptSession>& session,
                    const std::string& name, Done done) = 0;
  // Removes all that is on disk of the client's session whose id has this hash
  // (HashOf), and calls `done` once. `client` is "" if it is unknown.
  // Requires: the session has ended.
  virtual void Remove(const std::string& client, const std::string& hash,
                      Done done) = 0;
};

}  // namespace convgrad
