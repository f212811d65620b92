#include "server/plan_choice.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "spdlog/sinks/ostream_sink.h"
#include "spdlog/spdlog.h"

namespace convgrad {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

PlanOrigin Here() {
  return {"AuthenticAMD family 25 model 17", "AMD EPYC 9R14",
          "avx512_core_bf16", 2, "onednn 3.2.0"};
}

// A library on the CPU that takes any tuning but "= bad".
class TunableBackend final : public Backend {
 public:
  explicit TunableBackend(std::string* loaded) : loaded_(loaded) {}

  absl::string_view name() const override { return "tunable"; }
  BackendCapabilities capabilities() const override {
    BackendCapabilities capabilities;
    capabilities.version = "1.2";
    capabilities.cpu_features = {"avx2", "f16c"};
    return capabilities;
  }
  absl::Status CheckSupport(const Operation&) const override {
    return absl::UnimplementedError("nothing");
  }
  absl::StatusOr<std::unique_ptr<Plan>> MakePlan(
      const Operation&, const PlanOptions&) const override {
    return absl::UnimplementedError("nothing");
  }
  absl::Status LoadTuning(absl::string_view tuning) override {
    if (absl::StrContains(tuning, "= bad")) {
      return absl::InvalidArgumentError("bad tuning");
    }
    absl::StrAppend(loaded_, tuning);
    return absl::OkStatus();
  }

 private:
  std::string* const loaded_;
};

// A folder of plan files, and a log, of the test's own.
class PlanChoiceTest : public testing::Test {
 protected:
  PlanChoiceTest()
      : folder_(absl::StrCat(
            testing::TempDir(), "/plan_choice_",
            testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(folder_);
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log_)));
    backends_.push_back(
        {"tunable", std::make_unique<TunableBackend>(&loaded_)});
  }
  ~PlanChoiceTest() override {
    spdlog::set_default_logger(former_);
    std::filesystem::remove_all(folder_);
  }

  // Returns the path of a new file in the folder.
  std::string Write(const std::string& name, const std::string& text) {
    std::string path = absl::StrCat(folder_, "/", name);
    std::ofstream(path) << text;
    return path;
  }
  // Returns the name of the file that is found, "" if none is.
  std::string Find(const PlanOrigin& here = Here()) {
    const auto found = FindPlanFile(folder_, here);
    return found ? std::filesystem::path(found->path).filename() : "";
  }
  absl::Status Follow(const std::string& value) {
    return FollowPlanFile(value, Here(), backends_);
  }

  const std::shared_ptr<spdlog::logger> former_ = spdlog::default_logger();
  const std::string folder_;
  std::ostringstream log_;
  std::string loaded_;
  std::vector<RegisteredBackend> backends_;
};

TEST_F(PlanChoiceTest, FindsTheFirstByNameOfThoseOfThisMachine) {
  PlanOrigin avx2 = Here();
  avx2.isa = "avx2";
  Write("a.plan", ToHeader(avx2));
  Write("c.plan", ToHeader(Here()));
  Write("b.plan", ToHeader(Here()));
  EXPECT_EQ(Find(), "b.plan");
  EXPECT_EQ(Find(avx2), "a.plan");
  EXPECT_THAT(log_.str(), IsEmpty());
}

TEST_F(PlanChoiceTest, FindsNoneOfAnotherKindOfMachine) {
  PlanOrigin other = Here();
  other.cpu = "GenuineIntel family 6 model 207";
  Write("cpu.plan", ToHeader(other));
  other = Here();
  other.isa = "avx2";
  Write("isa.plan", ToHeader(other));
  other = Here();
  other.threads = 4;
  Write("threads.plan", ToHeader(other));
  other = Here();
  other.library = "onednn 3.3.0";
  Write("library.plan", ToHeader(other));
  Write("unknown.plan", "onednn: a = nxc\n");
  Write("networks.txt", ToHeader(Here()));
  EXPECT_EQ(Find(), "");
  EXPECT_THAT(log_.str(), IsEmpty());
}

TEST_F(PlanChoiceTest, PassesOverMalformedFilesWithAWarning) {
  Write("a.plan", "# convgrad-plan 1\n# cpu: half a header\n");
  Write("b.plan", ToHeader(Here()) + "no line of ours\n");
  std::filesystem::create_directory(folder_ + "/c.plan");
  Write("d.plan", ToHeader(Here()));
  EXPECT_EQ(Find(), "d.plan");
  for (const char* name : {"a.plan", "b.plan", "c.plan"}) {
    EXPECT_THAT(log_.str(), HasSubstr(absl::StrCat(name, " is passed over")));
  }
}

TEST_F(PlanChoiceTest, WarnsOfAFolderThatIsNotThere) {
  EXPECT_TRUE(Follow("auto:/no/such/folder").ok());
  EXPECT_THAT(log_.str(),
              AllOf(HasSubstr("[warning]"), HasSubstr("/no/such/folder"),
                    HasSubstr("heuristics alone")));
}

TEST_F(PlanChoiceTest, FollowsWhatIsFound) {
  Write("a.plan", ToHeader(Here()) + "tunable: a = 1\nother: b = 2\n");
  EXPECT_TRUE(Follow("auto:" + folder_).ok());
  EXPECT_EQ(loaded_, "a = 1\n");
  EXPECT_THAT(log_.str(), AllOf(HasSubstr("plans follow " + folder_),
                                Not(HasSubstr("[warning]"))));
}

TEST_F(PlanChoiceTest, StartsWhereWhatIsFoundCannotBeFollowed) {
  Write("a.plan", ToHeader(Here()) + "tunable: a = bad\n");
  EXPECT_TRUE(Follow("auto:" + folder_).ok());
  EXPECT_THAT(log_.str(), AllOf(HasSubstr("[warning]"), HasSubstr("a.plan"),
                                HasSubstr("bad tuning")));
}

TEST_F(PlanChoiceTest, SaysSoWhereNoneIsFound) {
  EXPECT_TRUE(Follow("auto:" + folder_).ok());
  EXPECT_THAT(log_.str(),
              AllOf(HasSubstr("heuristics alone"), HasSubstr(Describe(Here())),
                    Not(HasSubstr("[warning]"))));
  EXPECT_THAT(loaded_, IsEmpty());
}

TEST_F(PlanChoiceTest, FollowsANamedFileOfThisMachine) {
  EXPECT_TRUE(
      Follow(Write("mine", ToHeader(Here()) + "tunable: a = 1\n")).ok());
  EXPECT_EQ(loaded_, "a = 1\n");
  EXPECT_THAT(log_.str(), Not(HasSubstr("[warning]")));
}

TEST_F(PlanChoiceTest, FollowsANamedFileOfAnotherMachineWithOneWarning) {
  PlanOrigin other = Here();
  other.cpu = "GenuineIntel family 6 model 207";
  EXPECT_TRUE(
      Follow(Write("other", ToHeader(other) + "tunable: a = 1\n")).ok());
  EXPECT_EQ(loaded_, "a = 1\n");
  EXPECT_THAT(log_.str(), AllOf(HasSubstr("[warning]"),
                                HasSubstr("found " + Describe(other)),
                                HasSubstr("expected " + Describe(Here()))));
}

TEST_F(PlanChoiceTest, FollowsANamedFileOfUnknownOriginWithOneWarning) {
  EXPECT_TRUE(Follow(Write("old", "# old\ntunable: a = 1\n")).ok());
  EXPECT_EQ(loaded_, "a = 1\n");
  EXPECT_THAT(log_.str(), AllOf(HasSubstr("[warning]"),
                                HasSubstr("expected " + Describe(Here()))));
}

TEST_F(PlanChoiceTest, RefusesANamedFileThatCannotBeFollowed) {
  for (const char* text :
       {"tunable: a = bad\n", "tunable\n", "# convgrad-plan 1\n"}) {
    EXPECT_FALSE(Follow(Write("bad", text)).ok()) << text;
  }
  EXPECT_FALSE(Follow("/no/such/file").ok());
}

TEST_F(PlanChoiceTest, NeedsNoFile) {
  EXPECT_TRUE(Follow("").ok());
  EXPECT_THAT(log_.str(), IsEmpty());
}

TEST_F(PlanChoiceTest, KnowsItsOwnMachine) {
  Machine machine;
  machine.cpu = "AuthenticAMD family 25 model 17";
  machine.cpu_name = "AMD EPYC";
  std::vector<RegisteredBackend> backends;
  backends.push_back({"lost", absl::UnavailableError("no device")});
  backends.push_back(std::move(backends_[0]));
  EXPECT_EQ(ToHeader(OriginHere(machine, 3, backends)),
            "# convgrad-plan 1\n"
            "# cpu: AuthenticAMD family 25 model 17\n"
            "# cpu name: AMD EPYC\n"
            "# isa: avx2,f16c\n"
            "# threads: 3\n"
            "# library: tunable 1.2\n");
}

TEST(InstalledPlans, AreAllOfPlanFilesForm) {
  const std::filesystem::path folder(CONVGRAD_PLANS_FOLDER);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".plan") continue;
    ++files;
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const auto file = ParsePlanFile(text.str());
    ASSERT_TRUE(file.ok()) << entry.path() << file.status();
    ASSERT_TRUE(file->origin.has_value()) << entry.path();
    EXPECT_TRUE(LoadPlanFile(*file, MakeBackends()).ok()) << entry.path();
    const auto found = FindPlanFile(folder, *file->origin);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->path, entry.path());
  }
  EXPECT_GE(files, 1);
}

}  // namespace
}  // namespace convgrad
