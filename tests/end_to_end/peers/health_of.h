// `HealthOf` asks grpc.health.v1 about a service.
#pragma once

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/test_server.h"

namespace convgrad {

// Messages HealthCheckResponse{status}.
inline constexpr char kServing[] = "\x08\x01";
inline constexpr char kNotServing[] = "\x08\x02";

// Returns the answer of grpc.health.v1 about `service`.
inline std::string HealthOf(const std::shared_ptr<grpc::Channel>& channel,
                            const std::string& service) {
  return CallRaw(channel, "/grpc.health.v1.Health/Check",
                 absl::StrCat("\x0a", std::string(1, char(service.size())),
                              service))
      .response;
}

inline void AwaitHealth(const std::shared_ptr<grpc::Channel>& channel,
                        const std::string& service, const std::string& wanted) {
  const absl::Time limit = absl::Now() + absl::Seconds(60);
  while (HealthOf(channel, service) != wanted && absl::Now() < limit) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_EQ(HealthOf(channel, service), wanted) << service;
}

}  // namespace convgrad
