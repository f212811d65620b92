#include "client/cpp/command_line/settings/usage.h"

#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "client/cpp/command_line/settings/flags.h"

namespace convgrad {
namespace {

constexpr Command kCommands[] = {
    {"backward", Arguments::kProblem,
     "gradients of random tensors or files, checked"},
    {"forward", Arguments::kProblem,
     "the convolution with bias, residual and ReLU"},
    {"bench", Arguments::kProblem,
     "time, GFLOP/s and the server's stages over calls"},
    {"check", Arguments::kProblems,
     "the server against its reference backend, result by result"},
    {"top", Arguments::kNone, "what the server does, live, from its metrics"},
    {"sessions", Arguments::kNone,
     "what the server keeps for this client's trainers"},
    {"program", Arguments::kFile,
     "a network's steps with shapes, parameters and flops; no server"},
    {"capabilities", Arguments::kNone, "what the server's backends can do"},
    {"completions", Arguments::kShell, "a script for bash or zsh"},
    {"help", Arguments::kNone, "this text (also --help); --version"}};

constexpr char kHead[] = "convgrad: convolution gradients from a server.\n\n";

constexpr char kProblemHelp[] = R"(
PROBLEM, e.g. conv2d_n16_c64_o64_i56x56_k3_p1_b_relu: the kind (linear, conv1d to
conv3d, convtranspose1d...), then n batch, c and o channels, i input and k kernel
extents, s stride, d dilation, p padding (pb and pe for either end, psame,
pvalid), g groups, op output padding, b bias, res residual, relu. One number
stands for all axes. check has a list of its own if it is given none.

FILE: a program as text, one step a line, e.g. y = conv(x, w, padding=1).

)";

constexpr char kBash[] = R"(# bash completion for convgrad
_convgrad() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} flag= values=
  # bash takes --flag=value apart at the sign.
  if [[ $word == = ]]; then
    flag=$before word=
  elif [[ $before == = ]]; then
    flag=${COMP_WORDS[COMP_CWORD-2]}
  fi
  COMPREPLY=()
  if [[ -n $flag ]]; then
    case $flag in
$values    esac
  elif [[ $word == -* ]]; then
    compopt -o nospace
    values='$flags'
  elif [[ $COMP_CWORD -eq 1 ]]; then
    values='$commands'
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
_arguments -S \
$flags  '1:command:(($commands))' \
  '*:argument:->argument' && return
[[ $state == argument && $words[2] == completions ]] && _values shell bash zsh
[[ $state == argument && $words[2] == program ]] && _files
)";

absl::string_view ArgumentsText(Arguments arguments) {
  switch (arguments) {
    case Arguments::kNone:
      return "";
    case Arguments::kProblem:
      return " PROBLEM";
    case Arguments::kProblems:
      return " [PROBLEM...]";
    case Arguments::kFile:
      return " FILE";
    case Arguments::kShell:
      return " SHELL";
  }
  return "";
}

// Returns the text that tells what the flag is for.
std::string HelpOf(const FlagEntry& entry) {
  return absl::FindCommandLineFlag(entry.name)->Help();
}

// Returns one line per flag.
std::string FlagHelp() {
  std::string help;
  for (const FlagEntry& entry : AllFlags()) {
    const std::string value =
        absl::FindCommandLineFlag(entry.name)->DefaultValue();
    absl::StrAppendFormat(&help, "  --%-15s %s%s\n", entry.name, HelpOf(entry),
                          value.empty() ? "" : absl::StrCat(" [", value, "]"));
  }
  return help;
}

// Returns what may be typed for the flag: of a switch with and without "no".
std::string BashFlag(const FlagEntry& entry) {
  if (entry.values == kSwitch) {
    return absl::StrCat("--", entry.name, " --no", entry.name);
  }
  return absl::StrCat("--", entry.name, "=");
}

// Returns `text` for a specification of _arguments within single quotes.
std::string ZshQuoted(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"'", "'\\''"},
                                    {":", "\\:"},
                                    {"[", "\\["},
                                    {"]", "\\]"},
                                    {"\"", "\\\""}});
}

std::string ZshFlag(const FlagEntry& entry) {
  const std::string help = ZshQuoted(HelpOf(entry));
  if (entry.values == kSwitch) {
    return absl::StrFormat("  '--%s[%s]' \\\n  '--no%s[not so]' \\\n",
                           entry.name, help, entry.name);
  }
  std::string action;
  if (entry.values == kFiles) {
    action = "_files";
  } else if (!entry.values.empty()) {
    action = absl::StrCat("(", entry.values, ")");
  }
  return absl::StrFormat("  '--%s=[%s]:value:%s' \\\n", entry.name, help,
                         action);
}

}  // namespace

absl::Span<const Command> AllCommands() { return kCommands; }

std::string Usage() {
  std::string text = kHead;
  for (const Command& command : kCommands) {
    absl::StrAppendFormat(
        &text, "  convgrad %-20s %s\n",
        absl::StrCat(command.name, ArgumentsText(command.arguments)),
        command.help);
  }
  return absl::StrCat(text, kProblemHelp, FlagHelp());
}

std::string BashCompletion() {
  std::string flags, values, commands;
  for (const FlagEntry& entry : AllFlags()) {
    absl::StrAppend(&flags, flags.empty() ? "" : " ", BashFlag(entry));
    if (entry.values == kFiles) {
      absl::StrAppendFormat(
          &values,
          "      --%s) compopt -o filenames; COMPREPLY=($(compgen -f -- "
          "\"$word\")); return ;;\n",
          entry.name);
    } else if (!entry.values.empty() && entry.values != kSwitch) {
      absl::StrAppendFormat(&values, "      --%s) values='%s' ;;\n", entry.name,
                            entry.values);
    }
  }
  for (const Command& command : kCommands) {
    absl::StrAppend(&commands, commands.empty() ? "" : " ", command.name);
  }
  return absl::StrReplaceAll(kBash, {{"$flags", flags},
                                     {"$values    esac", values + "    esac"},
                                     {"$commands", commands}});
}

std::string ZshCompletion() {
  std::string flags, commands;
  for (const FlagEntry& entry : AllFlags()) {
    absl::StrAppend(&flags, ZshFlag(entry));
  }
  for (const Command& command : kCommands) {
    absl::StrAppendFormat(&commands, "%s%s\\:\"%s\"",
                          commands.empty() ? "" : " ", command.name,
                          ZshQuoted(command.help));
  }
  return absl::StrReplaceAll(kZsh,
                             {{"$flags", flags}, {"$commands", commands}});
}

}  // namespace convgrad
