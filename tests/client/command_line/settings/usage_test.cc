#include "client/cpp/command_line/settings/usage.h"

#include <algorithm>
#include <string>

#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/command_line/settings/flags.h"
#include "client/cpp/command_line/settings/settings.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

// A flag that only the program knows would be in no help and no completion.
TEST(Usage, HasEveryFlagOfTheTool) {
  ASSERT_TRUE(ReadSettings().ok());  // has the flags linked in
  size_t found_flags = 0;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (!absl::EndsWith(flag->Filename(), "command_line/settings/settings.cc"))
      continue;
    const auto flags = AllFlags();
    const auto found = std::find_if(
        flags.begin(), flags.end(),
        [&wanted = name](const FlagEntry& e) { return e.name == wanted; });
    ASSERT_NE(found, flags.end()) << name;
    EXPECT_EQ(found->values == kSwitch, flag->IsOfType<bool>()) << name;
    ++found_flags;
  }
  EXPECT_EQ(found_flags, AllFlags().size());
}

TEST(Usage, TellsCommandsAndFlagsEverywhere) {
  for (const std::string& text : {Usage(), BashCompletion(), ZshCompletion()}) {
    for (const Command& command : AllCommands()) {
      EXPECT_TRUE(absl::StrContains(text, command.name)) << command.name;
    }
    for (const FlagEntry& entry : AllFlags()) {
      EXPECT_TRUE(absl::StrContains(text, absl::StrCat("--", entry.name)));
    }
  }
}

}  // namespace
}  // namespace convgrad
