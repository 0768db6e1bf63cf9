// Parses expressions from a token list: the lower half of the parser.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/model/chat/jinja_ast.h"
#include "runtime/model/chat/jinja_lexer.h"

namespace hearth::jinja {

class ExpressionParser {
 protected:
  // REQUIRES: `tokens` ends with kEnd.
  ExpressionParser(std::vector<Token> tokens, const std::string& path)
      : tokens_(std::move(tokens)), path_(path) {}

  enum class Conditional : uint8_t { kAllowed, kNotAllowed };
  using Node = absl::StatusOr<ExprPtr>;

  const Token& Current() const { return tokens_[index_]; }
  const Token& Next() const { return tokens_[std::min(index_ + 1, tokens_.size() - 1)]; }
  Token Take();
  bool SkipOperator(std::string_view op);
  bool SkipName(std::string_view name);
  absl::Status ExpectOperator(std::string_view op);
  absl::Status Expect(TokenKind kind);
  absl::StatusOr<std::string> ExpectName();
  absl::Status Fail(std::string_view message) const;  // at the current token
  absl::Status Unexpected(std::string_view expected) const;

  // An expression, or a tuple of them where commas follow. Ends before `stop_name` where given.
  Node ParseTuple(Conditional conditional, std::string_view stop_name = "");
  Node ParseExpression(Conditional conditional = Conditional::kAllowed);
  // A name, a namespace attribute or a tuple of those, to assign to.
  Node ParseTarget(std::string_view stop_name, bool namespaces);
  // The filters that follow `node`, which is null in filter blocks and block assignments.
  // `at_name` says that the first "|" has been left out.
  Node ParseFilters(ExprPtr node, bool at_name);

  // Counts one level of brackets or blocks while it lives.
  class Level {
   public:
    explicit Level(ExpressionParser& parser) : parser_(parser) { ++parser_.level_; }
    ~Level() { --parser_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ExpressionParser& parser_;
  };
  absl::Status CheckLevel() const;

  // The names that have been read so far, as often as they are read.
  struct ImplicitReads {
    int64_t caller_count = 0;
    int64_t kwargs_count = 0;
    int64_t varargs_count = 0;
  };
  const ImplicitReads& implicit_reads() const { return implicit_reads_; }
  const std::string& path() const { return path_; }

 private:
  struct CallArgs {
    std::vector<ExprPtr> positional;
    std::vector<KeywordExpr> keywords;
  };

  // A node over `args`: sets its depth and refuses what is too deep.
  Node Make(Expr expr);
  Node MakeUnary(ExprKind kind, int32_t line, ExprPtr arg);
  Node MakeBinary(ExprKind kind, int32_t line, ExprPtr left, ExprPtr right,
                  BinaryOp op = BinaryOp::kAdd);

  Node ParseConditional();
  Node ParseOr();
  Node ParseAnd();
  Node ParseNot();
  Node ParseCompare();
  Node ParseSum();
  Node ParseConcat();
  Node ParseProduct();
  Node ParsePower();
  Node ParseUnary(bool with_filters);
  Node ParsePrimary();
  Node ParseName();
  Node ParseParenthesized();
  Node ParseList();
  Node ParseDict();
  Node ParsePostfix(ExprPtr node);
  Node ParseFiltersAndTests(ExprPtr node);
  Node ParseAttribute(ExprPtr node);
  Node ParseSubscript(ExprPtr node);
  Node ParseCall(ExprPtr node);
  Node ParseTest(ExprPtr node);
  absl::StatusOr<CallArgs> ParseCallArgs();
  absl::StatusOr<bool> ParseCompareOp(CompareOp* op);
  Node ParseTargetItem(bool namespaces);
  bool AtTupleEnd(std::string_view stop_name) const;

  std::vector<Token> tokens_;
  const std::string& path_;
  size_t index_ = 0;
  int32_t level_ = 0;
  ImplicitReads implicit_reads_;
};

}  // namespace hearth::jinja
