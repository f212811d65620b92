#include "server/token_file.h"

#include <utility>

#include "backends/core/status.h"
#include "server/flags/text_file.h"
#include "server/rpc/transport/pipe_check.h"

namespace convgrad {

TokenFile::TokenFile(std::string path, Gate* gate)
    : path_(std::move(path)), gate_(gate) {}

absl::Status TokenFile::Refresh() {
  if (path_.empty()) return absl::OkStatus();
  MutexLock lock(&mutex_);
  RETURN_IF_ERROR(CheckNoPipe("--token_file", path_));
  ASSIGN_OR_RETURN(std::string text, ReadTextFile("token_file", path_));
  if (text == text_) return absl::OkStatus();
  ASSIGN_OR_RETURN(TokenTable table, TokenTable::Parse(text));
  gate_->SetTokens(std::move(table));
  text_ = std::move(text);
  return absl::OkStatus();
}

}  // namespace convgrad
