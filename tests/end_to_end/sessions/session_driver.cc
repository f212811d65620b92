#include "tests/end_to_end/sessions/session_driver.h"

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace convgrad {
namespace {

constexpr absl::Duration kShortLease = absl::Seconds(1);
// The time after which the server may have ended an unused session: its lease,
// and time for a busy machine.
constexpr absl::Duration kUntilGone = absl::Seconds(3);
constexpr size_t kLateChanges = 12;

std::vector<std::string> PayloadsOf(const ChangeRequest& request,
                                    const std::string& response) {
  const auto payloads = [&](auto message) {
    EXPECT_TRUE(message.ParseFromString(response));
    return std::vector<std::string>{message.payloads().begin(),
                                    message.payloads().end()};
  };
  if (std::holds_alternative<v1::ConvForwardRequest>(request)) {
    return payloads(v1::ConvForwardResponse());
  }
  if (std::holds_alternative<v1::ConvBackwardRequest>(request)) {
    return payloads(v1::ConvBackwardResponse());
  }
  return {};
}

std::string Describe(const ChangeRequest& request) {
  return std::visit(
      [](auto message) {
        if constexpr (requires { message.clear_payloads(); }) {
          message.clear_payloads();
        }
        return message.ShortDebugString();
      },
      request);
}

}  // namespace

SessionDriver::SessionDriver(std::shared_ptr<grpc::Channel> channel, int seed)
    : channel_(std::move(channel)),
      random_(seed, seed % 100),
      session_(std::make_unique<SessionClient>(channel_)) {}

ChangeMetadata SessionDriver::NextChange() {
  // The acknowledged number lags behind, by at most the replies that the server
  // keeps.
  const int64_t lag = random_.Chance(50) ? 0 : random_.Below(20);
  return {session_->id(), order_.epoch(), order_.number() + 1, NewCallId(),
          std::max(order_.acknowledged(), order_.number() - lag)};
}

void SessionDriver::ExpectReply(const ModelReply& expected,
                                const ChangeRequest& request, int64_t number,
                                const Reply& reply) {
  ASSERT_EQ(reply.status.error_code(), expected.code)
      << reply.status.error_message() << "\n"
      << Describe(request);
  if (expected.code != grpc::StatusCode::OK) {
    EXPECT_TRUE(absl::StartsWith(reply.trailers.field, expected.field))
        << reply.trailers.field << " isn't in " << expected.field << "\n"
        << Describe(request);
    return;
  }
  if (std::holds_alternative<v1::PutTensorsRequest>(request)) {
    v1::PutTensorsResponse response;
    ASSERT_TRUE(response.ParseFromString(reply.response));
    EXPECT_EQ(response.version(), number);
  }
  const std::vector<std::string> payloads = PayloadsOf(request, reply.response);
  ASSERT_EQ(payloads.size(), expected.payloads.size());
  for (size_t i = 0; i < payloads.size(); ++i) {
    // Compares floats, because zeros may have either sign.
    EXPECT_EQ(FloatsOf(payloads[i]), FloatsOf(expected.payloads[i]))
        << Describe(request);
  }
}

void SessionDriver::Settle(const ChangeMetadata& change,
                           const ChangeRequest& request, const Reply& reply) {
  ModelTensors after = tensors_;
  const ModelReply expected = MakeChange(request, change.sequence, &after);
  ExpectReply(expected, request, change.sequence, reply);
  late_.emplace_back(change, request);
  if (late_.size() > kLateChanges) late_.erase(late_.begin());
  if (expected.code == grpc::StatusCode::OK) {
    tensors_ = std::move(after);
    order_.Commit(change, reply.response);
  } else {
    order_.Acknowledge(change.acknowledged);
    order_.Fail();
  }
  EXPECT_EQ(reply.number, order_.number());
}

void SessionDriver::Change() {
  const ChangeMetadata change = NextChange();
  const ChangeRequest request = NextRequest();
  ++calls_;
  Settle(change, request, StartChange(channel_, request, change)->Await());
}

void SessionDriver::Read(int64_t after) {
  v1::GetTensorsRequest request;
  std::vector<std::pair<ModelTensor, bool>> wanted;
  for (const auto& [name, tensor] : tensors_) {
    if (random_.Chance(50)) continue;
    v1::NamedGet* get = request.add_tensors();
    get->set_name(name);
    bool channels_last = tensor.channels_last;
    if (random_.Chance(40)) {
      channels_last = !channels_last;
      ModelTensor other = tensor;
      other.channels_last = channels_last;
      get->set_layout(other.layout());
    }
    wanted.emplace_back(tensor, channels_last);
  }
  ++calls_;
  const Reply reply =
      CallInFlight(channel_, request, {session_->id()}, absl::Minutes(2), after)
          .Await();
  ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
  EXPECT_EQ(reply.number, order_.number());
  v1::GetTensorsResponse response;
  ASSERT_TRUE(response.ParseFromString(reply.response));
  EXPECT_EQ(response.number(), order_.number());
  ASSERT_EQ(response.payloads_size(), static_cast<int>(wanted.size()));
  for (int i = 0; i < response.payloads_size(); ++i) {
    EXPECT_EQ(response.tensors(i).version(), wanted[i].first.version);
    EXPECT_EQ(FloatsOf(response.payloads(i)),
              FloatsOf(wanted[i].first.Bytes(wanted[i].second)));
  }
}

void SessionDriver::Resume() {
  grpc::ClientContext context;
  v1::ResumeSessionRequest request;
  request.set_session_id(session_->id());
  v1::SessionResponse response;
  ++calls_;
  const grpc::Status status =
      session_->stub().ResumeSession(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.number(), order_.number());
  EXPECT_EQ(response.epoch(), order_.epoch() + 1);
  order_.Resume(response.epoch());
}

void SessionDriver::ListAll() {
  ++calls_;
  const auto list = session_->List();
  ASSERT_TRUE(list.status.ok()) << list.status.error_message();
  EXPECT_EQ(list.response.number(), order_.number());
  ASSERT_EQ(list.response.tensors_size(), static_cast<int>(tensors_.size()));
  int i = 0;
  for (const auto& [name, tensor] : tensors_) {
    const v1::KeptTensorInfo& info = list.response.tensors(i++);
    EXPECT_EQ(info.name(), name);
    EXPECT_EQ(info.version(), tensor.version);
    EXPECT_EQ(info.tensor().layout(), tensor.layout());
    EXPECT_EQ(std::vector<int64_t>(info.tensor().dims().begin(),
                                   info.tensor().dims().end()),
              tensor.dims);
  }
  // The server has the bytes of every digest.
  v1::HaveTensorsRequest ask;
  for (const auto& [name, tensor] : tensors_) {
    if (!tensor.digest.empty()) ask.add_digests(tensor.digest);
  }
  grpc::ClientContext context;
  v1::HaveTensorsResponse have;
  ++calls_;
  ASSERT_TRUE(session_->stub().HaveTensors(&context, ask, &have).ok());
  for (bool has : have.have()) EXPECT_TRUE(has);
}

void SessionDriver::Close() {
  grpc::ClientContext context;
  v1::CloseSessionRequest close;
  close.set_session_id(session_->id());
  v1::CloseSessionResponse closed;
  ASSERT_TRUE(session_->stub().CloseSession(&context, close, &closed).ok());
  EXPECT_EQ(session_->List().status.error_code(), grpc::NOT_FOUND);
  EXPECT_EQ(StartChange(channel_, NextRequest(), NextChange())
                ->Await()
                .status.error_code(),
            grpc::NOT_FOUND);
  calls_ += 3;
}

void SessionDriver::Open() {
  session_ = std::make_unique<SessionClient>(channel_);
  order_ = {};
  tensors_.clear();
  late_.clear();
  ++calls_;
}

void SessionDriver::Abandon() {
  v1::OpenSessionRequest open;
  open.set_lease_seconds(absl::ToDoubleSeconds(kShortLease));
  SessionClient session(channel_, open);
  ChangeRequest put = random_.Next({});
  StartChange(channel_, put, session.Next())->Await();
  abandoned_.emplace_back(session.id(), absl::Now() + kUntilGone);
  calls_ += 2;
}

void SessionDriver::CheckAbandoned() {
  while (!abandoned_.empty() && abandoned_.front().second < absl::Now()) {
    const auto reply = SessionClient::Call<v1::ConvGradSessions::Stub>(
        &session_->stub(), &v1::ConvGradSessions::Stub::ListTensors,
        v1::ListTensorsRequest(), {abandoned_.front().first});
    EXPECT_EQ(reply.status.error_code(), grpc::NOT_FOUND);
    abandoned_.erase(abandoned_.begin());
    ++calls_;
  }
}

void SessionDriver::Step() {
  const int what = random_.Below(1000);
  if (what < 500) return Change();
  if (what < 600) return Read(order_.number() - random_.Below(3));
  if (what < 680) return RepeatSome();
  if (what < 760) return BreakTheRules();
  if (what < 860) return LoseTheReply();
  if (what < 960) return Pipeline();
  if (what < 975) return Resume();
  if (what < 990) return ListAll();
  if (what < 993) {
    Close();
    return Open();
  }
  if (what < 996) return Abandon();
  CheckAbandoned();
}

void SessionDriver::Finish() {
  ListAll();
  Read(0);
  Close();
}

}  // namespace convgrad
