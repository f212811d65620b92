#include "server/token_file.h"

#include <utility>

#include "backends/core/status.h"
#include "server/flags/text_file.h"
#include "server/rpc/transport/pipe_check.h"

namespace convgrad {

TokenFile::TokenFile(std::string path, Gate* gate)
    : path_(std::move(path)), gate_(gate) {}

absl::Status TokenFile::Load() {
  RETURN_IF_ERROR(CheckNoPipe("--token_file", path_));
  ASSIGN_OR_RETURN(std::string text, ReadTextFile("token_file", path_));
  if (text == text_) return absl::OkStatus();
  ASSIGN_OR_RETURN(TokenTable table, TokenTable::Parse(text));
  gate_->SetTokens(std::move(table));
  text_ = std::move(text);
  return absl::OkStatus();
}

absl::Status TokenFile::Refresh(bool repeats_error) {
  if (path_.empty()) return absl::OkStatus();
  MutexLock lock(&mutex_);
  const absl::Status before = std::exchange(error_, Load());
  // Without tokens the server would let every client do everything.
  const bool has_tokens = text_.has_value();
  const bool is_known = has_tokens && error_ == before && !repeats_error;
  return is_known ? absl::OkStatus() : error_;
}

}  // namespace convgrad
