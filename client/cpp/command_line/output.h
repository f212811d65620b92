// `Output` prints the tool's results, as text for people or as JSON for
// programs.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace convgrad {

// Owned by one thread.
class Output {
 public:
  explicit Output(bool is_json) : is_json_(is_json) {}

  // Prints `text`, or adds the members of `document` to the JSON object that
  // Finish prints.
  void Print(const nlohmann::ordered_json& document, const std::string& text);
  // Prints one of many results, which replaces the one before on a terminal:
  // `text`, or `document` on one line.
  void PrintNext(const nlohmann::ordered_json& document,
                 const std::string& text) const;
  // Prints why the command failed, on one line of stderr. No other result may
  // follow.
  void Error(const absl::Status& status);
  // Must be called once, at the end.
  void Finish() const;

 private:
  const bool is_json_;
  nlohmann::ordered_json document_ = nlohmann::ordered_json::object();
};

// Prints "convgrad: <code>: <message>" on one line of stderr.
void PrintError(const absl::Status& status);

}  // namespace convgrad
