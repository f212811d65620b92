#include "server/flags/flag_parser.h"

#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "gtest/gtest.h"
#include "server/flags/flag_table.h"

namespace convgrad {
namespace {

absl::StatusOr<ParsedFlags> Read(const std::vector<std::string>& arguments) {
  return ParseFlags(arguments, "1.2.3");
}

// Returns the config of a valid command line.
Config ConfigOf(const std::vector<std::string>& arguments) {
  const absl::StatusOr<ParsedFlags> line = Read(arguments);
  EXPECT_TRUE(line.ok()) << line.status();
  return line.ok() ? line->config : Config();
}

std::string WriteFile(absl::string_view name, absl::string_view text) {
  std::string path = absl::StrCat(testing::TempDir(), "/", name);
  std::ofstream(path) << text;
  return path;
}

TEST(FlagParser, SetsFieldsOfEveryType) {
  const Config config = ConfigOf(
      {"--listen=unix:/a=b,c:1", "--workers", "3", "--max_macs=12345678901",
       "--plan_cache_bytes=-1", "--max_message_bytes=8MiB",
       "--max_client_share=0.25", "--drain_timeout=1m30s", "--insecure",
       "--nopin_workers", "--prove_at_start=false"});
  EXPECT_EQ(config.listen, "unix:/a=b,c:1");
  EXPECT_EQ(config.workers, 3);
  EXPECT_EQ(config.max_macs, 12345678901);
  EXPECT_EQ(config.plan_cache_bytes, -1);
  EXPECT_EQ(config.max_message_bytes, 8 << 20);
  EXPECT_EQ(config.max_client_share, 0.25);
  EXPECT_EQ(config.drain_timeout, absl::Seconds(90));
  EXPECT_TRUE(config.insecure);
  EXPECT_FALSE(config.pin_workers);
  EXPECT_FALSE(config.prove_at_start);
}

TEST(FlagParser, NumbersOf64BitsMayHaveUnits) {
  const std::pair<const char*, int64_t> kNumbers[] = {
      {"8GiB", int64_t{8} << 30},
      {"2TiB", int64_t{2} << 40},
      {"64 MiB", 64 << 20},
      {"3KiB", 3072},
      {"5B", 5},
      {"-1", -1},
      {"9223372036854775807", 9223372036854775807}};
  for (const auto& [text, bytes] : kNumbers) {
    EXPECT_EQ(
        ConfigOf({absl::StrCat("--max_kept_bytes=", text)}).max_kept_bytes,
        bytes);
  }
  for (const char* text :
       {"8GB", "8 gigabytes", "GiB", "", "1.5GiB", "9223372036854775807KiB"}) {
    EXPECT_FALSE(Read({absl::StrCat("--max_kept_bytes=", text)}).ok()) << text;
  }
}

TEST(FlagParser, TakesEmptyValuesAndTheLastOfSeveral) {
  const Config config =
      ConfigOf({"--metrics_listen=", "--listen=a:1", "--listen=b:2"});
  EXPECT_EQ(config.metrics_listen, "");
  EXPECT_EQ(config.listen, "b:2");
}

TEST(FlagParser, TakesLinesOfFilesInPlace) {
  const std::string first =
      WriteFile("first.flags", "# mine\n\n --workers=5 \n--metrics_listen=\n");
  const std::string second = WriteFile("second.flags", "--queue_capacity=7\n");
  const Config config = ConfigOf(
      {"--workers=1", "--queue_capacity=9",
       absl::StrCat("--flagfile=", first, ",", second), "--queue_capacity=8"});
  EXPECT_EQ(config.workers, 5);
  EXPECT_EQ(config.metrics_listen, "");
  EXPECT_EQ(config.queue_capacity, 8);
}

TEST(FlagParser, AnswersHelpAndVersion) {
  EXPECT_EQ(Read({"--version"})->answer, "1.2.3\n");
  const std::string help = Read({"--workers=3", "--help"})->answer;
  for (const Flag& flag : AllFlags()) {
    EXPECT_TRUE(absl::StrContains(help, absl::StrCat("--", flag.name)));
    EXPECT_TRUE(absl::StrContains(help, flag.help)) << flag.name;
  }
  EXPECT_TRUE(absl::StrContains(help, "--flagfile"));
}

TEST(FlagParser, SaysWhatIsWrongInOneLine) {
  const std::string nested = WriteFile("nested.flags", "--flagfile=other\n");
  const std::pair<std::vector<std::string>, const char*> kBad[] = {
      {{"--workers=many"}, "--workers: found 'many', expected a whole number"},
      {{"--workers=99999999999"}, "--workers: found '99999999999', expected"},
      {{"--workers="}, "--workers: found '', expected a whole number"},
      {{"--max_client_share=half"},
       "--max_client_share: found 'half', expected a number"},
      {{"--drain_delay=10"}, "--drain_delay: found '10', expected a time"},
      {{"--plan_cache_bytes=8GB"},
       "--plan_cache_bytes: found '8GB', expected a number, e.g. 8589934592"},
      {{"--insecure=perhaps"}, "--insecure: found 'perhaps', expected true or"},
      {{"--insecure=2nd"}, "--insecure: found '2nd', expected true or false"},
      {{"--insecure=9223372036854775808"}, "--insecure: found '92233"},
      {{"--noinsecure=9223372036854775808"}, "--noinsecure: found '92233"},
      {{"--noinsecure=true"}, "--noinsecure: found 'true', expected no value"},
      {{"--workers"}, "--workers"},
      {{"--blah"}, "Unknown command line flag '--blah'"},
      {{"--blah=1", "--insecure"}, "Unknown command line flag '--blah=1'"},
      {{"--nolisten"}, "Unknown command line flag '--nolisten'"},
      {{"stray"}, "found 'stray', expected only flags"},
      {{"--insecure", "yes"}, "found 'yes', expected only flags"},
      {{"--flagfile=/nowhere"}, "--flagfile: found '/nowhere'"},
      {{"--flagfile", "/nowhere"}, "Unknown command line flag '--flagfile'"},
      {{absl::StrCat("--flagfile=", nested)},
       "Unknown command line flag '--flagfile=other'"},
  };
  for (const auto& [arguments, text] : kBad) {
    const absl::Status status = Read(arguments).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_TRUE(absl::StrContains(status.message(), text)) << status;
    EXPECT_FALSE(absl::StrContains(status.message(), "\n")) << status;
  }
}

// Returns the table of server/flags/README.md between its two markers.
std::string ReadmeTable() {
  std::ifstream file(CONVGRAD_SERVER_README);
  std::stringstream text;
  text << file.rdbuf();
  const std::string readme = text.str();
  const size_t marker = readme.find("<!-- flags: begin");
  const size_t begin = readme.find('\n', marker) + 1;
  const size_t end = readme.find("<!-- flags: end -->", begin);
  if (marker == std::string::npos || end == std::string::npos) return "";
  return readme.substr(begin, end - begin);
}

TEST(FlagTable, IsTheOneOfTheReadme) {
  std::string table = "| flag | default | valid | |\n|---|---|---|---|\n";
  for (const Flag& flag : AllFlags()) {
    absl::StrAppend(&table, "| ", flag.name, " | ", DefaultOf(flag), " | ",
                    ValuesOf(flag), " | ", flag.help, " |\n");
  }
  EXPECT_EQ(ReadmeTable(), table)
      << "put this table into server/flags/README.md:\n"
      << table;
}

TEST(FlagTable, DefaultsAreWhatTheCommandLineTakes) {
  for (const Flag& flag : AllFlags()) {
    const std::string text = DefaultOf(flag);
    Config config;
    EXPECT_TRUE(SetFlag(flag, text, &config).ok()) << flag.name;
    EXPECT_EQ(flag.help.find_first_of("|\n"), absl::string_view::npos);
  }
}

}  // namespace
}  // namespace convgrad
