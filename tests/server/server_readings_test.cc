#include "server/server_readings.h"

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

// Returns the samples of a family by the value of their last label.
std::map<std::string, double> ValuesOf(const Readings& readings,
                                       absl::string_view name) {
  std::map<std::string, double> values;
  for (const Readings::Reading& reading : readings.all()) {
    if (reading.name != name) continue;
    const std::string& label = reading.labels.back().second;
    EXPECT_TRUE(values.emplace(label, reading.value).second)
        << "Prometheus drops the second of two samples with equal labels";
  }
  return values;
}

TEST(ServerReadings, NameSixteenClients) {
  std::vector<ClientQuotas::Use> clients;
  Readings none;
  AddClients(clients, &none);
  EXPECT_TRUE(none.all().empty());
  for (int i = 0; i < 19; ++i) {
    clients.push_back({absl::StrCat("client-", i), 2, 100 - i});
  }
  Readings readings;
  AddClients(clients, &readings);
  auto sessions = ValuesOf(readings, "convgrad_client_sessions");
  auto bytes = ValuesOf(readings, "convgrad_client_kept_bytes");
  EXPECT_EQ(sessions["client-0"], 2);
  EXPECT_EQ(bytes["client-15"], 85);
  EXPECT_EQ(bytes.count("client-16"), 0U);
  EXPECT_EQ(sessions["other"], 6);
  EXPECT_EQ(bytes["other"], 249);
  clients[3].client = "other";
  Readings renamed;
  AddClients(clients, &renamed);
  EXPECT_EQ(ValuesOf(renamed, "convgrad_client_sessions")["other"], 8);
  EXPECT_EQ(ValuesOf(renamed, "convgrad_client_kept_bytes")["other"], 346);
}

TEST(ServerReadings, SayHowDevicesAre) {
  Readings readings;
  const auto add = [&](const char* device, const DeviceState& state) {
    AddDevice({{"backend", "onednn"}, {"device", device}}, state, 3, &readings);
  };
  add("0", {"first", false, 1000, 400, 0.5});
  add("1", {"second", true, {}, {}, {}});
  using Values = std::map<std::string, double>;
  EXPECT_EQ(ValuesOf(readings, "convgrad_device_up"),
            (Values{{"0", 1}, {"1", 0}}));
  EXPECT_EQ(ValuesOf(readings, "convgrad_device_queue_depth"),
            (Values{{"0", 3}, {"1", 3}}));
  // An unknown value has no series.
  EXPECT_EQ(ValuesOf(readings, "convgrad_device_memory_bytes"),
            (Values{{"0", 1000}}));
  EXPECT_EQ(ValuesOf(readings, "convgrad_device_memory_used_bytes"),
            (Values{{"0", 400}}));
  EXPECT_EQ(ValuesOf(readings, "convgrad_device_utilization_ratio"),
            (Values{{"0", 0.5}}));
}

}  // namespace
}  // namespace convgrad
