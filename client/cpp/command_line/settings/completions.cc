#include "client/cpp/command_line/settings/completions.h"

#include <map>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "client/cpp/command_line/settings/commands_app.h"

namespace convgrad {
namespace {

constexpr char kBash[] = R"(# bash completion for convgrad
_convgrad() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} option= values=
  # bash takes --option=value apart at the sign.
  if [[ $word == = ]]; then
    option=$before word=
  elif [[ $before == = ]]; then
    option=${COMP_WORDS[COMP_CWORD-2]}
  fi
  COMPREPLY=()
  if [[ -n $option ]]; then
    case $option in
@values@    esac
  elif [[ $word == -* ]]; then
    compopt -o nospace
    case ${COMP_WORDS[1]} in
@options@    esac
  elif [[ $COMP_CWORD -eq 1 ]]; then
    values='@commands@'
  elif [[ $before == completions ]]; then
    values='bash zsh'
  elif [[ $before == program ]]; then
    compopt -o filenames; COMPREPLY=($(compgen -f -- "$word")); return
  fi
  # shellcheck disable=SC2207  # no value has blanks
  COMPREPLY=($(compgen -W "$values" -- "$word"))
}
complete -F _convgrad convgrad
)";

constexpr char kZsh[] = R"(#compdef convgrad
local -a options
case $words[2] in
@options@esac
_arguments -S $options '1:command:((@commands@))' '*:argument:->argument' && return
[[ $state == argument && $words[2] == completions ]] && _values shell bash zsh
[[ $state == argument && $words[2] == program ]] && _files
)";

// Holds the commands with their options.
struct Commands {
  Commands() { AddCommands(&settings, &refusal, &app); }

  Settings settings;
  absl::Status refusal;
  CLI::App app;
};

bool IsSwitch(const CLI::Option& option) {
  return option.get_expected_max() == 0;
}

// Returns the words that the option accepts, "" for other values.
std::string WordsOf(const CLI::Option& option) {
  const std::string kind = option.get_type_name();
  if (!absl::StrContains(kind, "|")) return "";
  return absl::StrReplaceAll(kind, {{"|", " "}});
}

// Returns `text` quoted for a specification of _arguments in single quotes.
std::string ZshQuoted(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"'", "'\\''"},
                                    {":", "\\:"},
                                    {"[", "\\["},
                                    {"]", "\\]"},
                                    {"\"", "\\\""}});
}

// Returns a specification of _arguments for each name of the option.
std::string ZshOption(const CLI::Option& option) {
  const std::string help = ZshQuoted(option.get_description());
  const std::string words = WordsOf(option);
  std::string action;
  if (!words.empty()) action = absl::StrCat("(", words, ")");
  if (option.get_type_name() == "FILE") action = "_files";
  std::string text;
  for (const std::string& name : option.get_lnames()) {
    absl::StrAppend(&text, " '--", name,
                    IsSwitch(option)
                        ? absl::StrCat("[", help, "]'")
                        : absl::StrCat("=[", help, "]:value:", action, "'"));
  }
  return text;
}

}  // namespace

std::string BashCompletion() {
  const Commands commands;
  std::string names, options;
  std::map<std::string, std::string> values;
  for (const CLI::App* command : commands.app.get_subcommands(nullptr)) {
    absl::StrAppend(&names, names.empty() ? "" : " ", command->get_name());
    absl::StrAppend(&options, "      ", command->get_name(), ") values='");
    for (const CLI::Option* option : command->get_options()) {
      const std::string words = WordsOf(*option);
      for (const std::string& name : option->get_lnames()) {
        absl::StrAppend(&options, "--", name, IsSwitch(*option) ? " " : "= ");
        if (option->get_type_name() == "FILE") {
          values[name] =
              "compopt -o filenames; COMPREPLY=($(compgen -f -- \"$word\")); "
              "return";
        } else if (!words.empty()) {
          values[name] = absl::StrCat("values='", words, "'");
        }
      }
    }
    absl::StrAppend(&options, "' ;;\n");
  }
  std::string cases;
  for (const auto& [name, value] : values) {
    absl::StrAppend(&cases, "      --", name, ") ", value, " ;;\n");
  }
  return absl::StrReplaceAll(
      kBash,
      {{"@options@", options}, {"@values@", cases}, {"@commands@", names}});
}

std::string ZshCompletion() {
  const Commands commands;
  std::string names, options;
  for (const CLI::App* command : commands.app.get_subcommands(nullptr)) {
    absl::StrAppendFormat(&names, "%s%s\\:\"%s\"", names.empty() ? "" : " ",
                          command->get_name(),
                          ZshQuoted(command->get_description()));
    absl::StrAppend(&options, "  ", command->get_name(), ") options=(");
    for (const CLI::Option* option : command->get_options()) {
      absl::StrAppend(&options, ZshOption(*option));
    }
    absl::StrAppend(&options, ") ;;\n");
  }
  return absl::StrReplaceAll(kZsh,
                             {{"@options@", options}, {"@commands@", names}});
}

}  // namespace convgrad
