// Errors as each dialect tells them.
#include "runtime/serve/api/api_error.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace hearth {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

TEST(ApiErrorTest, OpenAisForm) {
  const ErrorReply reply =
      MakeErrorReply(Dialect::kOpenAiChat, FieldError("n", "expected 1", "unsupported_value"));
  EXPECT_EQ(reply.http_status, 400);
  EXPECT_FALSE(reply.may_retry_later);
  EXPECT_EQ(Json::parse(reply.body),
            Json::parse(R"({"error": {"message": "n: expected 1", "type": "invalid_request_error",
                            "param": "n", "code": "unsupported_value"}})"));
}

TEST(ApiErrorTest, AnthropicsForm) {
  const ErrorReply reply = MakeErrorReply(Dialect::kAnthropic, FieldError("a", "bad"));
  EXPECT_EQ(Json::parse(reply.body),
            Json::parse(R"({"type": "error", "error": {"type": "invalid_request_error",
                            "message": "a: bad"}})"));
}

TEST(ApiErrorTest, StatusCodesHaveTheirNumbers) {
  const auto check = [](const absl::Status& status, int number, const char* openai,
                        const char* anthropic) {
    const ErrorReply a = MakeErrorReply(Dialect::kOpenAiChat, status);
    const ErrorReply b = MakeErrorReply(Dialect::kAnthropic, status);
    EXPECT_EQ(a.http_status, number) << status;
    EXPECT_EQ(b.http_status, number);
    EXPECT_EQ(Json::parse(a.body)["error"]["type"], openai);
    EXPECT_EQ(Json::parse(b.body)["error"]["type"], anthropic);
    EXPECT_EQ(a.may_retry_later, number == 429 || number == 503);
  };
  check(absl::OutOfRangeError("x"), 400, "invalid_request_error", "invalid_request_error");
  check(absl::UnauthenticatedError("x"), 401, "authentication_error", "authentication_error");
  check(absl::PermissionDeniedError("x"), 403, "permission_error", "permission_error");
  check(absl::NotFoundError("x"), 404, "invalid_request_error", "not_found_error");
  check(absl::ResourceExhaustedError("x"), 429, "rate_limit_error", "rate_limit_error");
  check(absl::UnavailableError("x"), 503, "service_unavailable", "overloaded_error");
  check(absl::DeadlineExceededError("x"), 504, "timeout", "timeout_error");
  check(absl::DataLossError("x"), 500, "server_error", "api_error");
  check(WithHttpStatus(absl::UnimplementedError("x"), 501), 501, "invalid_request_error",
        "invalid_request_error");
  check(WithHttpStatus(absl::OutOfRangeError("x"), 413), 413, "invalid_request_error",
        "request_too_large");
}

TEST(ApiErrorTest, OurOwnFailuresTellNothingOfThemselves) {
  const ErrorReply reply =
      MakeErrorReply(Dialect::kOpenAiChat, absl::InternalError("/secret/path: broke"));
  EXPECT_EQ(reply.http_status, 500);
  EXPECT_THAT(reply.body, Not(HasSubstr("secret")));
}

TEST(ApiErrorTest, TextsOfOthersAreEscapedAndMended) {
  const std::string body =
      MakeErrorReply(Dialect::kOpenAiChat, absl::InvalidArgumentError("a\"\n\xFF")).body;
  EXPECT_EQ(Json::parse(body)["error"]["message"], "a\"\n\xEF\xBF\xBD");
}

TEST(ApiErrorTest, QuotedTextsAreCutAndPrintable) {
  const absl::Status status =
      AtField(absl::InvalidArgumentError("say \xC3\xA9\n" + std::string(5000, 'x')), "messages");
  EXPECT_THAT(std::string(status.message()), testing::StartsWith("messages: say ???xxx"));
  EXPECT_LT(status.message().size(), 1100U);
  EXPECT_EQ(AtField(absl::ResourceExhaustedError("too deep"), "tools").code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ApiErrorTest, RefusalsOfTheTransport) {
  const Json json = Json::parse(
      TransportErrorBody(Dialect::kOpenAiChat, 413, "body_too_large", "The body is too large."));
  EXPECT_EQ(json["error"]["code"], "body_too_large");
  EXPECT_EQ(json["error"]["param"], nullptr);
  EXPECT_EQ(Json::parse(TransportErrorBody(Dialect::kAnthropic, 401, "key", "x"))["error"]["type"],
            "authentication_error");
}

}  // namespace
}  // namespace hearth
