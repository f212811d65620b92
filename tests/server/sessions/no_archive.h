// `NoArchive` is a double of the disk for tests of sessions: it writes nothing,
// says that it has, and finds no snapshot.
#pragma once

#include <memory>
#include <string>

#include "server/sessions/session_archive.h"

namespace convgrad {

class NoArchive : public SessionArchive {
 public:
  void Load(const std::shared_ptr<KeptSession>& /*session*/) override {}
  void Forget(const std::shared_ptr<KeptSession>& /*session*/) override {}
  void Save(const std::shared_ptr<KeptSession>& /*session*/,
            Done done) override {
    done(absl::OkStatus());
  }
  void Keep(const std::shared_ptr<KeptSession>& /*session*/,
            const std::string& /*name*/, Done done) override {
    done(absl::OkStatus());
  }
  void LoadNamed(const std::shared_ptr<KeptSession>& /*session*/,
                 const std::string& /*name*/, Loaded done) override {
    done(absl::NotFoundError("none"));
  }
  void Drop(const std::shared_ptr<KeptSession>& /*session*/,
            const std::string& /*name*/, Done done) override {
    done(absl::OkStatus());
  }
  void Remove(const std::string& /*client*/, const std::string& /*hash*/,
              Done done) override {
    done(absl::OkStatus());
  }
};

}  // namespace convgrad
