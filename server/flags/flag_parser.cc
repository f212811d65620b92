#include "server/flags/flag_parser.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "backends/core/status.h"
#include "server/flags/flag_table.h"
#include "server/flags/text_file.h"

namespace convgrad {
namespace {

// Adds an argument. CLI11 2.1 takes the argument that follows "--flag=" as the
// flag's value, so an empty value becomes an argument of its own.
void AddArgument(absl::string_view argument, std::vector<std::string>* all) {
  const bool is_empty = argument.find('=') == argument.size() - 1 &&
                        absl::StartsWith(argument, "--");
  if (is_empty) argument.remove_suffix(1);
  all->emplace_back(argument);
  if (is_empty) all->emplace_back();
}

// Checks the value of `--NAME=VALUE` for a flag that is true or false, because
// CLI11 2.1 would read it as a number by its first digits.
absl::Status CheckBool(absl::string_view argument) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(argument, absl::MaxSplits('=', 1));
  if (parts.first.size() == argument.size()) return absl::OkStatus();
  for (const Flag& flag : AllFlags()) {
    if (!std::holds_alternative<bool Config::*>(flag.field)) continue;
    if (parts.first == absl::StrCat("--", flag.name)) {
      Config unused;
      return SetFlag(flag, std::string(parts.second), &unused);
    }
    if (parts.first == absl::StrCat("--no", flag.name)) {
      return absl::InvalidArgumentError(absl::StrCat(
          parts.first, ": found '", parts.second, "', expected no value"));
    }
  }
  return absl::OkStatus();
}

// Returns the arguments, with each --flagfile replaced by the lines of its
// files.
absl::StatusOr<std::vector<std::string>> WithFlagFiles(
    const std::vector<std::string>& arguments) {
  std::vector<std::string> all;
  for (absl::string_view argument : arguments) {
    if (!absl::ConsumePrefix(&argument, "--flagfile=")) {
      AddArgument(argument, &all);
      continue;
    }
    for (const absl::string_view path : absl::StrSplit(argument, ',')) {
      ASSIGN_OR_RETURN(const std::string text,
                       ReadTextFile("flagfile", std::string(path)));
      for (absl::string_view line : absl::StrSplit(text, '\n')) {
        line = absl::StripAsciiWhitespace(line);
        if (!line.empty() && line[0] != '#') AddArgument(line, &all);
      }
    }
  }
  return all;
}

// Returns the help text, with default and valid values in brackets.
std::string HelpOf(const Flag& flag) {
  std::vector<std::string> facts = {DefaultOf(flag), ValuesOf(flag)};
  facts.erase(std::remove(facts.begin(), facts.end(), ""), facts.end());
  if (facts.empty()) return std::string(flag.help);
  return absl::StrCat(flag.help, " [", absl::StrJoin(facts, "; "), "]");
}

// Adds the flag to the app, which sets its field of `config` or stores the
// error in `refusal`.
void AddFlag(const Flag& flag, Config* config, absl::Status* refusal,
             CLI::App* app) {
  const std::string name = absl::StrCat("--", flag.name);
  if (const auto* field = std::get_if<bool Config::*>(&flag.field)) {
    app->add_flag(absl::StrCat(name, ",!--no", flag.name), config->**field,
                  HelpOf(flag));
    return;
  }
  const auto set = [&flag, config, refusal](const CLI::results_t& values) {
    const absl::Status status = SetFlag(flag, values.back(), config);
    if (refusal->ok()) *refusal = status;
    return true;
  };
  app->add_option(name, set, HelpOf(flag))->take_last()->type_name("VALUE");
}

// Errors: kInvalidArgument naming the first argument that isn't a flag.
absl::Status CheckRest(const std::vector<std::string>& rest) {
  if (rest.empty()) return absl::OkStatus();
  const absl::string_view first = rest.front();
  return absl::InvalidArgumentError(
      absl::StartsWith(first, "-")
          ? absl::StrCat("Unknown command line flag '", first,
                         "', expected one of --help")
          : absl::StrCat("found '", first, "', expected only flags"));
}

}  // namespace

absl::StatusOr<ParsedFlags> ParseFlags(
    const std::vector<std::string>& arguments, const std::string& version) {
  ParsedFlags line;
  absl::Status refusal;
  CLI::App app("Computes convolution gradients over gRPC.", "convgrad-server");
  app.allow_extras();
  app.set_version_flag("--version", version);
  app.get_formatter()->column_width(32);
  for (const Flag& flag : AllFlags()) {
    AddFlag(flag, &line.config, &refusal, &app);
  }
  app.footer("A config file: --flagfile=FILE, with one --flag=value a line.");
  ASSIGN_OR_RETURN(std::vector<std::string> words, WithFlagFiles(arguments));
  for (const std::string& word : words) RETURN_IF_ERROR(CheckBool(word));
  std::reverse(words.begin(), words.end());
  try {
    app.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    line.answer = app.help();
    return line;
  } catch (const CLI::CallForVersion& answer) {
    line.answer = absl::StrCat(answer.what(), "\n");
    return line;
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(error.what());
  }
  RETURN_IF_ERROR(refusal);
  RETURN_IF_ERROR(CheckRest(app.remaining()));
  return line;
}

}  // namespace convgrad
