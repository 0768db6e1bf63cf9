// See request_parser.h. Beast parses the lines and the chunks; what it tolerates and we do not is
// refused here, byte by byte before it (the head) or in its callbacks.
#include "runtime/serve/http/request_parser.h"

#include <algorithm>
#include <array>
#include <utility>

#include <boost/beast/http/basic_parser.hpp>

#include "runtime/base/check.h"

namespace hearth {
namespace {

namespace beast_http = boost::beast::http;
using BeastError = boost::beast::error_code;
using BeastView = boost::beast::string_view;

// Beyond the longest target: the method, the version and the spaces between.
constexpr size_t kLineRestBytes = 64;
// A chunk's size line with its extensions, or all trailers.
constexpr size_t kChunkLineBytesMax = 4096;

std::string_view ToStdView(BeastView v) { return {v.data(), v.size()}; }

bool IsTokenByte(char c) {
  constexpr std::string_view kPunctuation = "!#$%&'*+-.^_`|~";
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         kPunctuation.find(c) != std::string_view::npos;
}
bool IsControl(char c) { return (c >= 0 && c < 0x20) || c == 0x7f; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Looks at the bytes of a head as they come, before anything is parsed.
class HeadScan {
 public:
  explicit HeadScan(const HttpLimits& limits) : limits_(limits) {}

  // False: refusal() says why.
  bool Take(char c) {
    ++byte_count_;
    if (byte_count_ == 1 && !IsTokenByte(c)) return Refuse(HttpRefusal::kBadRequest);
    if (last_ == '\r' ? c != '\n' : c == '\n') return Refuse(HttpRefusal::kBadRequest);
    if (c == '\n') return EndLine();
    if (c != '\r' && c != '\t' && IsControl(c)) return Refuse(HttpRefusal::kBadRequest);
    if (last_ == '\n' && (c == ' ' || c == '\t'))
      return Refuse(HttpRefusal::kBadRequest);  // folded
    if (line_count_ == 0 && (c == '\t' || static_cast<unsigned char>(c) >= 0x80))
      return Refuse(HttpRefusal::kBadTarget);
    ++line_bytes_;
    if (line_count_ == 0 && line_bytes_ > limits_.target_bytes_max + kLineRestBytes)
      return Refuse(HttpRefusal::kTargetTooLong);
    if (byte_count_ > limits_.head_bytes_max) return Refuse(HttpRefusal::kHeadTooLarge);
    last_ = c;
    return true;
  }
  bool complete() const { return complete_; }
  HttpRefusal refusal() const { return refusal_; }

 private:
  bool Refuse(HttpRefusal refusal) {
    refusal_ = refusal;
    return false;
  }
  bool EndLine() {
    complete_ = line_count_ > 0 && line_bytes_ == 1;  // only the '\r'
    ++line_count_;
    line_bytes_ = 0;
    last_ = '\n';
    if (line_count_ > limits_.header_count_max + 2) return Refuse(HttpRefusal::kHeadTooLarge);
    return true;
  }

  const HttpLimits& limits_;
  uint64_t byte_count_ = 0;
  uint64_t line_count_ = 0;
  uint64_t line_bytes_ = 0;
  char last_ = 0;
  bool complete_ = false;
  HttpRefusal refusal_ = HttpRefusal::kBadRequest;
};

}  // namespace

class RequestParser::Impl final : public beast_http::basic_parser<true> {
 public:
  explicit Impl(const HttpLimits& limits) : limits_(limits), scan_(limits_) {
    eager(true);
    header_limit(UINT32_MAX);  // the scan has its own
    body_limit(boost::none);   // and so has on_body_impl
  }

  Fed Feed(std::string_view bytes) {
    if (phase_ == Phase::kHead) return FeedHead(bytes);
    HEARTH_CHECK(phase_ == Phase::kBody);
    if (is_done()) return {.step = Step::kDone, .used = 0};
    if (bytes.empty()) return {.step = Step::kMore, .used = 0};
    BeastError error;
    const size_t used = put({bytes.data(), bytes.size()}, error);
    if (refused_) return Refused(refusal_);
    if (error && error != beast_http::error::need_more) return Refused(HttpRefusal::kBadRequest);
    if (is_done()) return {.step = Step::kDone, .used = used};
    if (bytes.size() - used > kChunkLineBytesMax) return Refused(HttpRefusal::kBadRequest);
    return {.step = Step::kMore, .used = used};
  }

  bool begun() const { return !head_text_.empty(); }
  RequestHead& head() { return head_; }
  void LimitBody(uint64_t bytes_max) { body_bytes_max_ = std::min(body_bytes_max_, bytes_max); }
  uint64_t body_bytes() const { return head_.request.body.size(); }
  HttpRefusal refusal() const { return refusal_; }
  HttpRequest Take() {
    HEARTH_CHECK(phase_ == Phase::kBody && is_done());
    return std::move(head_.request);
  }

 private:
  enum class Phase { kHead, kBody, kRefused };

  Fed Refused(HttpRefusal refusal) {
    phase_ = Phase::kRefused;
    refusal_ = refusal;
    return {.step = Step::kRefused, .used = 0};
  }
  void Refuse(HttpRefusal refusal, BeastError& error) {
    refused_ = true;
    refusal_ = refusal;
    error = beast_http::error::bad_value;  // stops the parser; which one does not matter
  }

  Fed FeedHead(std::string_view bytes) {
    size_t used = 0;
    // One empty line before a request is what some clients leave behind their last body.
    while (used < bytes.size() && head_text_.empty() && blank_bytes_ < 2 &&
           bytes[used] == "\r\n"[blank_bytes_]) {
      ++blank_bytes_;
      ++used;
    }
    if (head_text_.empty() && blank_bytes_ == 1 && used < bytes.size())
      return Refused(HttpRefusal::kBadRequest);
    const size_t begin = used;
    while (used < bytes.size() && !scan_.complete()) {
      if (!scan_.Take(bytes[used])) return Refused(scan_.refusal());
      ++used;
    }
    head_text_.append(bytes.substr(begin, used - begin));
    if (!scan_.complete()) return {.step = Step::kMore, .used = used};
    return ParseHead(used);
  }

  Fed ParseHead(size_t used) {
    BeastError error;
    eager(false);  // the body waits until somebody has looked at the head
    const size_t taken = put({head_text_.data(), head_text_.size()}, error);
    if (refused_) return Refused(refusal_);
    if (error) return Refused(RefusalOf(error));
    if (!is_header_done() && taken < head_text_.size()) {  // Beast stops after the request line
      put({head_text_.data() + taken, head_text_.size() - taken}, error);
      if (refused_) return Refused(refusal_);
      if (error) return Refused(RefusalOf(error));
    }
    if (!is_header_done()) return Refused(HttpRefusal::kBadRequest);
    head_.keep_alive = keep_alive();
    if (const std::optional<HttpRefusal> refusal = CheckHead()) return Refused(*refusal);
    eager(true);
    phase_ = Phase::kBody;
    return {.step = Step::kHead, .used = used};
  }

  HttpRefusal RefusalOf(const BeastError& error) const {
    if (error == beast_http::error::bad_version) {
      const std::string_view line = std::string_view(head_text_).substr(0, head_text_.find('\r'));
      const std::string_view version = line.substr(std::min(line.rfind(' ') + 1, line.size()));
      const bool other = version.size() == 8 && version.substr(0, 5) == "HTTP/" &&
                         IsDigit(version[5]) && version[6] == '.' && IsDigit(version[7]);
      return other ? HttpRefusal::kVersion : HttpRefusal::kBadRequest;
    }
    if (error == beast_http::error::bad_content_length ||
        error == beast_http::error::multiple_content_length ||
        error == beast_http::error::bad_transfer_encoding)
      return HttpRefusal::kAmbiguousBody;
    if (error == beast_http::error::bad_target) return HttpRefusal::kBadTarget;
    return HttpRefusal::kBadRequest;
  }

  std::optional<HttpRefusal> CheckHead() {
    if (length_count_ + encoding_count_ > 1) return HttpRefusal::kAmbiguousBody;
    if (encoding_count_ > 0 && !head_.http_1_1) return HttpRefusal::kAmbiguousBody;
    if (encoding_count_ > 0 && !chunked()) return HttpRefusal::kTransferEncoding;
    head_.has_length = length_count_ + encoding_count_ > 0;
    head_.has_body = !is_done();
    if (!chunked()) head_.length_bytes = content_length().value_or(0);
    if (host_count_ > 1 || (host_count_ == 0 && head_.http_1_1)) return HttpRefusal::kBadHost;
    if (!ReadTarget()) return HttpRefusal::kBadTarget;
    if (!head_.http_1_1) head_.expects_continue = false;
    return std::nullopt;
  }

  // Splits target_ into path and query; an absolute target's authority takes the place of Host.
  bool ReadTarget() {
    std::string_view rest = target_;
    if (!std::all_of(rest.begin(), rest.end(),
                     [](char c) { return c > 0x20 && c < 0x7f && c != '#'; }))
      return false;
    HttpRequest& request = head_.request;
    if (rest == "*" && request.method == "OPTIONS") {
      request.path = "*";
      return true;
    }
    for (const std::string_view scheme : {"http://", "https://"}) {
      if (!EqualNoCase(rest.substr(0, scheme.size()), scheme)) continue;
      rest.remove_prefix(scheme.size());
      const size_t end = std::min(rest.find_first_of("/?"), rest.size());
      head_.host = std::string(rest.substr(0, end));
      rest.remove_prefix(end);
      if (rest.empty()) rest = "/";
      break;
    }
    if (rest.empty() || rest.front() != '/') return false;
    const size_t mark = rest.find('?');
    if (mark != std::string_view::npos) request.query = std::string(rest.substr(mark + 1));
    std::optional<std::string> path = PercentDecode(rest.substr(0, mark));
    if (!path.has_value() ||
        !std::all_of(path->begin(), path->end(), [](char c) { return c >= 0x20 && c < 0x7f; }))
      return false;
    request.path = *std::move(path);
    return true;
  }

  void on_request_impl(beast_http::verb, BeastView method, BeastView target, int version,
                       BeastError& error) override {
    head_.request.method = std::string(ToStdView(method));
    target_ = std::string(ToStdView(target));
    head_.http_1_1 = version >= 11;
    if (target_.size() > limits_.target_bytes_max) Refuse(HttpRefusal::kTargetTooLong, error);
  }

  void on_field_impl(beast_http::field field, BeastView name, BeastView value,
                     BeastError& error) override {
    if (phase_ != Phase::kHead) return;  // a trailer: nothing reads those
    const std::string_view text = ToStdView(value);
    if (field == beast_http::field::content_length) {
      ++length_count_;
      if (text.empty() || text.size() > 19 || !std::all_of(text.begin(), text.end(), IsDigit))
        Refuse(HttpRefusal::kAmbiguousBody, error);
    } else if (field == beast_http::field::transfer_encoding) {
      ++encoding_count_;
      if (!EqualNoCase(text, "chunked"))
        Refuse(length_count_ > 0 ? HttpRefusal::kAmbiguousBody : HttpRefusal::kTransferEncoding,
               error);
    } else if (field == beast_http::field::host) {
      ++host_count_;
      head_.host = std::string(text);
    } else if (field == beast_http::field::expect) {
      head_.expects_continue = true;
      if (!EqualNoCase(text, "100-continue")) Refuse(HttpRefusal::kExpectation, error);
    }
    head_.request.headers.push_back({std::string(ToStdView(name)), std::string(text)});
  }

  size_t TakeBody(std::string_view bytes, BeastError& error) {
    std::string& body = head_.request.body;
    if (bytes.size() > body_bytes_max_ - body.size()) {
      Refuse(HttpRefusal::kBodyTooLarge, error);
      return 0;
    }
    body.append(bytes);
    return bytes.size();
  }
  void on_body_init_impl(const boost::optional<std::uint64_t>& length, BeastError& error) override {
    if (length.has_value() && *length > body_bytes_max_) Refuse(HttpRefusal::kBodyTooLarge, error);
  }
  size_t on_body_impl(BeastView bytes, BeastError& error) override {
    return TakeBody(ToStdView(bytes), error);
  }
  void on_chunk_header_impl(std::uint64_t bytes, BeastView, BeastError& error) override {
    if (bytes > body_bytes_max_ - body_bytes()) Refuse(HttpRefusal::kBodyTooLarge, error);
  }
  size_t on_chunk_body_impl(std::uint64_t, BeastView bytes, BeastError& error) override {
    return TakeBody(ToStdView(bytes), error);
  }
  void on_response_impl(int, BeastView, int, BeastError&) override {}
  void on_header_impl(BeastError&) override {}
  void on_finish_impl(BeastError&) override {}

  const HttpLimits limits_;
  HeadScan scan_;
  Phase phase_ = Phase::kHead;
  std::string head_text_;
  size_t blank_bytes_ = 0;  // of an empty line before the request
  std::string target_;
  RequestHead head_;
  uint32_t length_count_ = 0;
  uint32_t encoding_count_ = 0;
  uint32_t host_count_ = 0;
  uint64_t body_bytes_max_ = UINT64_MAX;
  bool refused_ = false;
  HttpRefusal refusal_ = HttpRefusal::kBadRequest;
};

RequestParser::RequestParser(const HttpLimits& limits) : impl_(std::make_unique<Impl>(limits)) {
  impl_->LimitBody(limits.body_bytes_max);
}
RequestParser::~RequestParser() = default;
RequestParser::RequestParser(RequestParser&&) noexcept = default;
RequestParser& RequestParser::operator=(RequestParser&&) noexcept = default;

RequestParser::Fed RequestParser::Feed(std::string_view bytes) { return impl_->Feed(bytes); }
bool RequestParser::begun() const { return impl_->begun(); }
RequestHead& RequestParser::head() { return impl_->head(); }
void RequestParser::LimitBody(uint64_t bytes_max) { impl_->LimitBody(bytes_max); }
uint64_t RequestParser::body_bytes() const { return impl_->body_bytes(); }
HttpRequest RequestParser::Take() { return impl_->Take(); }
HttpRefusal RequestParser::refusal() const { return impl_->refusal(); }

}  // namespace hearth
