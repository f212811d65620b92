// Makes the documents that --json prints of the tool's results, and their
// texts.
#pragma once

#include <string>
#include <vector>

#include "client/cpp/client.h"
#include "client/cpp/command_line/checks/reference_check.h"
#include "client/cpp/command_line/checks/result_check.h"
#include "nlohmann/json_fwd.hpp"

namespace convgrad {

// Returns the message in protobuf's JSON mapping, with the names of the .proto
// and with fields of value 0.
nlohmann::ordered_json MessageJson(const google::protobuf::Message& message);

// Describe a call: time, rates, the server's stages and the implementation.
// Times in documents are in seconds.
nlohmann::ordered_json ReplyJson(const ConvOperation& operation,
                                 const OperationReply& reply);
std::string ReplyText(const ConvOperation& operation,
                      const OperationReply& reply);

nlohmann::ordered_json CheckJson(const ResultCheck& check);
std::string CheckText(const ResultCheck& check);

nlohmann::ordered_json ComparisonsJson(
    const std::vector<Comparison>& comparisons);
std::string ComparisonsText(const std::vector<Comparison>& comparisons);

// Returns the result of SummaryOf as text.
std::string SummaryText(const nlohmann::ordered_json& summary);

std::string CapabilitiesText(const v1::GetCapabilitiesResponse& response);
std::string SessionsText(const v1::ListSessionsResponse& response);

}  // namespace convgrad
