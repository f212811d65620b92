// `NoArchive` is a double of the disk for tests of sessions: it writes nothing,
// says that it has, and finds no snapshot.
#pragma once

#include <memory>
#include <string>

#include "server/sessions/session_archive.h"

namespace convgrad {

class NoArchive : public SessionArchive {
 public:
  void Load(std::shared_ptr<KeptSession> /*session*/) override {}
  void Forget(std::shared_ptr<KeptSession> /*session*/) override {}
  void Save(std::shared_ptr<KeptSession> /*session*/, Done done) override {
    done(absl::OkStatus());
  }
  void Keep(std::shared_ptr<KeptSession> /*session*/,
            const std::string& /*name*/, Done done) override {
    done(absl::OkStatus());
  }
  void LoadNamed(std::shared_ptr<KeptSession> /*session*/,
                 const std::string& /*name*/, Loaded done) override {
    done(absl::NotFoundError("none"));
  }
  void Drop(std::shared_ptr<KeptSession> /*session*/,
            const std::string& /*name*/, Done done) override {
    done(absl::OkStatus());
  }
  void Remove(const std::string& /*client*/, const std::string& /*hash*/,
              Done done) override {
    done(absl::OkStatus());
  }
};

}  // namespace convgrad
