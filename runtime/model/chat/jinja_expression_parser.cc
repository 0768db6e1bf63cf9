// The expression grammar, weakest binding first: conditional, or, and, not, comparison, + -, ~,
// * / // %, **, unary, then calls, attributes, filters and tests.
#include "runtime/model/chat/jinja_expression_parser.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/model/chat/jinja_filters.h"
#include "runtime/model/chat/jinja_methods.h"
#include "runtime/model/chat/jinja_tests.h"

namespace hearth::jinja {
namespace {

std::string Describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kData:
      return "template text";
    case TokenKind::kVariableBegin:
      return "'{{'";
    case TokenKind::kVariableEnd:
      return "'}}'";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kEnd:
      return "the end of the template";
    default:
      return absl::StrCat("'", token.text, "'");
  }
}

Expr At(ExprKind kind, int32_t line) {
  Expr expr;
  expr.kind = kind;
  expr.line = line;
  return expr;
}

}  // namespace

Token ExpressionParser::Take() {
  Token token = tokens_[index_];
  if (index_ + 1 < tokens_.size()) ++index_;
  return token;
}

bool ExpressionParser::SkipOperator(std::string_view op) {
  if (!Current().IsOperator(op)) return false;
  Take();
  return true;
}

bool ExpressionParser::SkipName(std::string_view name) {
  if (!Current().IsName(name)) return false;
  Take();
  return true;
}

absl::Status ExpressionParser::Fail(std::string_view message) const {
  return SyntaxError(path_, Current().line, message);
}

absl::Status ExpressionParser::Unexpected(std::string_view expected) const {
  return Fail(absl::StrCat("expected ", ToAbsl(expected), ", found ", Describe(Current())));
}

absl::Status ExpressionParser::ExpectOperator(std::string_view op) {
  if (SkipOperator(op)) return absl::OkStatus();
  return Unexpected(absl::StrCat("'", ToAbsl(op), "'"));
}

absl::Status ExpressionParser::Expect(TokenKind kind) {
  if (Current().kind != kind) {
    Token wanted;
    wanted.kind = kind;
    return Unexpected(Describe(wanted));
  }
  Take();
  return absl::OkStatus();
}

absl::StatusOr<std::string> ExpressionParser::ExpectName() {
  if (Current().kind != TokenKind::kName) return Unexpected("a name");
  return Take().text;
}

absl::Status ExpressionParser::CheckLevel() const {
  if (level_ <= kNestingDepthMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      path_, ":", Current().line, ": nested deeper than ", kNestingDepthMax, " levels"));
}

ExpressionParser::Node ExpressionParser::Make(Expr expr) {
  for (const ExprPtr& arg : expr.args) {
    if (arg) expr.depth = std::max(expr.depth, arg->depth + 1);
  }
  for (const KeywordExpr& keyword : expr.keywords) {
    expr.depth = std::max(expr.depth, keyword.value->depth + 1);
  }
  if (expr.depth > kExpressionDepthMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path_, ":", expr.line, ": an expression of more than ", kExpressionDepthMax,
                     " operations, one in the other"));
  }
  return std::make_unique<const Expr>(std::move(expr));
}

ExpressionParser::Node ExpressionParser::MakeUnary(ExprKind kind, int32_t line, ExprPtr arg) {
  Expr expr = At(kind, line);
  expr.args.push_back(std::move(arg));
  return Make(std::move(expr));
}

ExpressionParser::Node ExpressionParser::MakeBinary(ExprKind kind, int32_t line, ExprPtr left,
                                                    ExprPtr right, BinaryOp op) {
  Expr expr = At(kind, line);
  expr.op = op;
  expr.args.push_back(std::move(left));
  expr.args.push_back(std::move(right));
  return Make(std::move(expr));
}

ExpressionParser::Node ExpressionParser::ParseExpression(Conditional conditional) {
  const Level level(*this);
  HEARTH_RETURN_IF_ERROR(CheckLevel());
  return conditional == Conditional::kAllowed ? ParseConditional() : ParseOr();
}

ExpressionParser::Node ExpressionParser::ParseConditional() {
  HEARTH_ASSIGN_OR_RETURN(ExprPtr value, ParseOr());
  while (Current().IsName("if")) {
    Expr expr = At(ExprKind::kConditional, Take().line);
    HEARTH_ASSIGN_OR_RETURN(ExprPtr condition, ParseOr());
    ExprPtr otherwise;
    if (SkipName("else")) {
      HEARTH_ASSIGN_OR_RETURN(otherwise, ParseExpression());
    }
    expr.args.push_back(std::move(value));
    expr.args.push_back(std::move(condition));
    expr.args.push_back(std::move(otherwise));
    HEARTH_ASSIGN_OR_RETURN(value, Make(std::move(expr)));
  }
  return value;
}

ExpressionParser::Node ExpressionParser::ParseOr() {
  HEARTH_ASSIGN_OR_RETURN(ExprPtr left, ParseAnd());
  while (Current().IsName("or")) {
    const int32_t line = Take().line;
    HEARTH_ASSIGN_OR_RETURN(ExprPtr right, ParseAnd());
    HEARTH_ASSIGN_OR_RETURN(left,
                            MakeBinary(ExprKind::kOr, line, std::move(left), std::move(right)));
  }
  return left;
}

ExpressionParser::Node ExpressionParser::ParseAnd() {
  HEARTH_ASSIGN_OR_RETURN(ExprPtr left, ParseNot());
  while (Current().IsName("and")) {
    const int32_t line = Take().line;
    HEARTH_ASSIGN_OR_RETURN(ExprPtr right, ParseNot());
    HEARTH_ASSIGN_OR_RETURN(left,
                            MakeBinary(ExprKind::kAnd, line, std::move(left), std::move(right)));
  }
  return left;
}

ExpressionParser::Node ExpressionParser::ParseNot() {
  if (!Current().IsName("not")) return ParseCompare();
  const Level level(*this);
  HEARTH_RETURN_IF_ERROR(CheckLevel());
  const int32_t line = Take().line;
  HEARTH_ASSIGN_OR_RETURN(ExprPtr arg, ParseNot());
  return MakeUnary(ExprKind::kNot, line, std::move(arg));
}

absl::StatusOr<bool> ExpressionParser::ParseCompareOp(CompareOp* op) {
  static constexpr std::pair<std::string_view, CompareOp> kOps[] = {
      {"==", CompareOp::kEq}, {"!=", CompareOp::kNe}, {"<", CompareOp::kLt},
      {"<=", CompareOp::kLe}, {">", CompareOp::kGt},  {">=", CompareOp::kGe}};
  for (const auto& [text, value] : kOps) {
    if (SkipOperator(text)) {
      *op = value;
      return true;
    }
  }
  if (SkipName("in")) {
    *op = CompareOp::kIn;
    return true;
  }
  if (Current().IsName("not") && Next().IsName("in")) {
    Take();
    Take();
    *op = CompareOp::kNotIn;
    return true;
  }
  return false;
}

ExpressionParser::Node ExpressionParser::ParseCompare() {
  Expr expr = At(ExprKind::kCompare, Current().line);
  HEARTH_ASSIGN_OR_RETURN(ExprPtr left, ParseSum());
  expr.args.push_back(std::move(left));
  while (true) {
    CompareOp op = CompareOp::kEq;
    HEARTH_ASSIGN_OR_RETURN(const bool found, ParseCompareOp(&op));
    if (!found) break;
    HEARTH_ASSIGN_OR_RETURN(ExprPtr right, ParseSum());
    expr.compare_ops.push_back(op);
    expr.args.push_back(std::move(right));
  }
  if (expr.compare_ops.empty()) return std::move(expr.args[0]);
  return Make(std::move(expr));
}

ExpressionParser::Node ExpressionParser::ParseSum() {
  HEARTH_ASSIGN_OR_RETURN(ExprPtr left, ParseConcat());
  while (Current().IsOperator("+") || Current().IsOperator("-")) {
    const Token token = Take();
    HEARTH_ASSIGN_OR_RETURN(ExprPtr right, ParseConcat());
    HEARTH_ASSIGN_OR_RETURN(
        left, MakeBinary(ExprKind::kBinary, token.line, std::move(left), std::move(right),
                         token.text == "+" ? BinaryOp::kAdd : BinaryOp::kSub));
  }
  return left;
}

ExpressionParser::Node ExpressionParser::ParseConcat() {
  Expr expr = At(ExprKind::kConcat, Current().line);
  HEARTH_ASSIGN_OR_RETURN(ExprPtr first, ParseProduct());
  expr.args.push_back(std::move(first));
  while (SkipOperator("~")) {
    HEARTH_ASSIGN_OR_RETURN(ExprPtr next, ParseProduct());
    expr.args.push_back(std::move(next));
  }
  if (expr.args.size() == 1) return std::move(expr.args[0]);
  return Make(std::move(expr));
}

ExpressionParser::Node ExpressionParser::ParseProduct() {
  static constexpr std::pair<std::string_view, BinaryOp> kOps[] = {{"*", BinaryOp::kMul},
                                                                   {"/", BinaryOp::kDiv},
                                                                   {"//", BinaryOp::kFloorDiv},
                                                                   {"%", BinaryOp::kMod}};
  HEARTH_ASSIGN_OR_RETURN(ExprPtr left, ParsePower());
  while (true) {
    const auto* op = std::find_if(std::begin(kOps), std::end(kOps), [this](const auto& candidate) {
      return Current().IsOperator(candidate.first);
    });
    if (op == std::end(kOps)) return left;
    const int32_t line = Take().line;
    HEARTH_ASSIGN_OR_RETURN(ExprPtr right, ParsePower());
    HEARTH_ASSIGN_OR_RETURN(
        left, MakeBinary(ExprKind::kBinary, line, std::move(left), std::move(right), op->second));
  }
}

// Left to right, unlike Python's.
ExpressionParser::Node ExpressionParser::ParsePower() {
  HEARTH_ASSIGN_OR_RETURN(ExprPtr left, ParseUnary(true));
  while (Current().IsOperator("**")) {
    const int32_t line = Take().line;
    HEARTH_ASSIGN_OR_RETURN(ExprPtr right, ParseUnary(true));
    HEARTH_ASSIGN_OR_RETURN(left, MakeBinary(ExprKind::kBinary, line, std::move(left),
                                             std::move(right), BinaryOp::kPow));
  }
  return left;
}

ExpressionParser::Node ExpressionParser::ParseUnary(bool with_filters) {
  ExprPtr node;
  if (Current().IsOperator("-") || Current().IsOperator("+")) {
    const Level level(*this);
    HEARTH_RETURN_IF_ERROR(CheckLevel());
    const Token sign = Take();
    HEARTH_ASSIGN_OR_RETURN(ExprPtr arg, ParseUnary(false));
    HEARTH_ASSIGN_OR_RETURN(node, MakeUnary(sign.text == "-" ? ExprKind::kNegate : ExprKind::kPlus,
                                            sign.line, std::move(arg)));
  } else {
    HEARTH_ASSIGN_OR_RETURN(node, ParsePrimary());
  }
  HEARTH_ASSIGN_OR_RETURN(node, ParsePostfix(std::move(node)));
  if (!with_filters) return node;
  return ParseFiltersAndTests(std::move(node));
}

ExpressionParser::Node ExpressionParser::ParsePrimary() {
  const Token& token = Current();
  if (token.kind == TokenKind::kName) return ParseName();
  Expr expr = At(ExprKind::kConstant, token.line);
  if (token.kind == TokenKind::kNumber) {
    expr.value = Take().value;
    return Make(std::move(expr));
  }
  if (token.kind == TokenKind::kString) {
    std::string text;
    while (Current().kind == TokenKind::kString) text += Take().text;
    expr.value = Value::String(std::move(text));
    return Make(std::move(expr));
  }
  if (token.IsOperator("(")) return ParseParenthesized();
  if (token.IsOperator("[")) return ParseList();
  if (token.IsOperator("{")) return ParseDict();
  return Unexpected("an expression");
}

ExpressionParser::Node ExpressionParser::ParseName() {
  const Token token = Take();
  Expr expr = At(ExprKind::kConstant, token.line);
  if (token.text == "true" || token.text == "True") {
    expr.value = Value::Bool(true);
  } else if (token.text == "false" || token.text == "False") {
    expr.value = Value::Bool(false);
  } else if (token.text == "none" || token.text == "None") {
    expr.value = Value::None();
  } else {
    expr.kind = ExprKind::kName;
    expr.name = token.text;
    implicit_reads_.caller_count += token.text == "caller" ? 1 : 0;
    implicit_reads_.kwargs_count += token.text == "kwargs" ? 1 : 0;
    implicit_reads_.varargs_count += token.text == "varargs" ? 1 : 0;
  }
  return Make(std::move(expr));
}

bool ExpressionParser::AtTupleEnd(std::string_view stop_name) const {
  const Token& token = Current();
  return token.kind == TokenKind::kVariableEnd || token.kind == TokenKind::kBlockEnd ||
         token.IsOperator(")") || (!stop_name.empty() && token.IsName(stop_name));
}

ExpressionParser::Node ExpressionParser::ParseTuple(Conditional conditional,
                                                    std::string_view stop_name) {
  Expr expr = At(ExprKind::kTuple, Current().line);
  HEARTH_ASSIGN_OR_RETURN(ExprPtr first, ParseExpression(conditional));
  if (!Current().IsOperator(",")) return first;
  expr.args.push_back(std::move(first));
  while (SkipOperator(",") && !AtTupleEnd(stop_name)) {
    HEARTH_ASSIGN_OR_RETURN(ExprPtr next, ParseExpression(conditional));
    expr.args.push_back(std::move(next));
  }
  return Make(std::move(expr));
}

ExpressionParser::Node ExpressionParser::ParseParenthesized() {
  const int32_t line = Take().line;
  if (SkipOperator(")")) return Make(At(ExprKind::kTuple, line));
  HEARTH_ASSIGN_OR_RETURN(ExprPtr node, ParseTuple(Conditional::kAllowed));
  HEARTH_RETURN_IF_ERROR(ExpectOperator(")"));
  return node;
}

ExpressionParser::Node ExpressionParser::ParseList() {
  Expr expr = At(ExprKind::kList, Take().line);
  while (!Current().IsOperator("]")) {
    if (!expr.args.empty()) {
      HEARTH_RETURN_IF_ERROR(ExpectOperator(","));
      if (Current().IsOperator("]")) break;
    }
    HEARTH_ASSIGN_OR_RETURN(ExprPtr item, ParseExpression());
    expr.args.push_back(std::move(item));
  }
  HEARTH_RETURN_IF_ERROR(ExpectOperator("]"));
  return Make(std::move(expr));
}

ExpressionParser::Node ExpressionParser::ParseDict() {
  Expr expr = At(ExprKind::kDict, Take().line);
  while (!Current().IsOperator("}")) {
    if (!expr.args.empty()) {
      HEARTH_RETURN_IF_ERROR(ExpectOperator(","));
      if (Current().IsOperator("}")) break;
    }
    HEARTH_ASSIGN_OR_RETURN(ExprPtr key, ParseExpression());
    HEARTH_RETURN_IF_ERROR(ExpectOperator(":"));
    HEARTH_ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
    expr.args.push_back(std::move(key));
    expr.args.push_back(std::move(value));
  }
  HEARTH_RETURN_IF_ERROR(ExpectOperator("}"));
  return Make(std::move(expr));
}

ExpressionParser::Node ExpressionParser::ParsePostfix(ExprPtr node) {
  while (true) {
    if (Current().IsOperator(".")) {
      HEARTH_ASSIGN_OR_RETURN(node, ParseAttribute(std::move(node)));
    } else if (Current().IsOperator("[")) {
      HEARTH_ASSIGN_OR_RETURN(node, ParseSubscript(std::move(node)));
    } else if (Current().IsOperator("(")) {
      HEARTH_ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

ExpressionParser::Node ExpressionParser::ParseFiltersAndTests(ExprPtr node) {
  while (true) {
    if (Current().IsOperator("|")) {
      HEARTH_ASSIGN_OR_RETURN(node, ParseFilters(std::move(node), false));
    } else if (Current().IsName("is")) {
      HEARTH_ASSIGN_OR_RETURN(node, ParseTest(std::move(node)));
    } else if (Current().IsOperator("(")) {
      HEARTH_ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

ExpressionParser::Node ExpressionParser::ParseAttribute(ExprPtr node) {
  const int32_t line = Take().line;
  if (Current().kind == TokenKind::kNumber && Current().value.kind() == Kind::kInt) {
    Expr index = At(ExprKind::kConstant, line);
    index.value = Take().value;
    HEARTH_ASSIGN_OR_RETURN(ExprPtr key, Make(std::move(index)));
    return MakeBinary(ExprKind::kItem, line, std::move(node), std::move(key));
  }
  if (Current().kind != TokenKind::kName) return Unexpected("a name or a number after '.'");
  Expr expr = At(ExprKind::kAttribute, line);
  expr.name = Take().text;
  if (Current().IsOperator("(") && IsRefusedMethod(expr.name)) {
    return SyntaxError(path_, line, absl::StrCat("the method '", expr.name, "' is not supported"));
  }
  expr.args.push_back(std::move(node));
  return Make(std::move(expr));
}

ExpressionParser::Node ExpressionParser::ParseSubscript(ExprPtr node) {
  const int32_t line = Take().line;
  Expr slice = At(ExprKind::kSlice, line);
  slice.args.push_back(std::move(node));
  bool is_slice = false;
  while (slice.args.size() < 4) {
    ExprPtr part;
    if (!Current().IsOperator(":") && !Current().IsOperator("]")) {
      HEARTH_ASSIGN_OR_RETURN(part, ParseExpression());
    }
    slice.args.push_back(std::move(part));
    if (slice.args.size() == 4 || !SkipOperator(":")) break;
    is_slice = true;
  }
  if (Current().IsOperator(",")) return Fail("a subscript of several parts is not supported");
  HEARTH_RETURN_IF_ERROR(ExpectOperator("]"));
  if (!is_slice) {
    if (!slice.args[1]) {
      return SyntaxError(path_, line, "an empty subscript");
    }
    return MakeBinary(ExprKind::kItem, line, std::move(slice.args[0]), std::move(slice.args[1]));
  }
  slice.args.resize(4);
  return Make(std::move(slice));
}

absl::StatusOr<ExpressionParser::CallArgs> ExpressionParser::ParseCallArgs() {
  CallArgs args;
  HEARTH_RETURN_IF_ERROR(ExpectOperator("("));
  while (!Current().IsOperator(")")) {
    if (!args.positional.empty() || !args.keywords.empty()) {
      HEARTH_RETURN_IF_ERROR(ExpectOperator(","));
      if (Current().IsOperator(")")) break;
    }
    if (Current().IsOperator("*") || Current().IsOperator("**")) {
      return Fail("calls with *args or **kwargs are not supported");
    }
    if (Current().kind == TokenKind::kName && Next().IsOperator("=")) {
      KeywordExpr keyword;
      keyword.name = Take().text;
      Take();
      for (const KeywordExpr& other : args.keywords) {
        if (other.name == keyword.name) {
          return Fail(absl::StrCat("the argument '", keyword.name, "' is repeated"));
        }
      }
      HEARTH_ASSIGN_OR_RETURN(keyword.value, ParseExpression());
      args.keywords.push_back(std::move(keyword));
    } else {
      if (!args.keywords.empty()) return Fail("an argument without a name after one with a name");
      HEARTH_ASSIGN_OR_RETURN(ExprPtr arg, ParseExpression());
      args.positional.push_back(std::move(arg));
    }
  }
  HEARTH_RETURN_IF_ERROR(ExpectOperator(")"));
  return args;
}

ExpressionParser::Node ExpressionParser::ParseCall(ExprPtr node) {
  Expr expr = At(ExprKind::kCall, Current().line);
  if (node->kind == ExprKind::kName &&
      (node->name == "cycler" || node->name == "joiner" || node->name == "lipsum")) {
    return Fail(absl::StrCat("the function '", node->name, "' is not supported"));
  }
  HEARTH_ASSIGN_OR_RETURN(CallArgs args, ParseCallArgs());
  expr.args.push_back(std::move(node));
  for (ExprPtr& arg : args.positional) expr.args.push_back(std::move(arg));
  expr.keywords = std::move(args.keywords);
  return Make(std::move(expr));
}

ExpressionParser::Node ExpressionParser::ParseFilters(ExprPtr node, bool at_name) {
  while (at_name || SkipOperator("|")) {
    at_name = false;
    Expr expr = At(ExprKind::kFilter, Current().line);
    HEARTH_ASSIGN_OR_RETURN(expr.name, ExpectName());
    if (!IsFilter(expr.name)) {
      return SyntaxError(
          path_, expr.line,
          absl::StrCat("unknown filter '", expr.name, "'; known filters are ", KnownFilters()));
    }
    expr.args.push_back(std::move(node));
    if (Current().IsOperator("(")) {
      HEARTH_ASSIGN_OR_RETURN(CallArgs args, ParseCallArgs());
      for (ExprPtr& arg : args.positional) expr.args.push_back(std::move(arg));
      expr.keywords = std::move(args.keywords);
    }
    HEARTH_ASSIGN_OR_RETURN(node, Make(std::move(expr)));
  }
  return node;
}

ExpressionParser::Node ExpressionParser::ParseTest(ExprPtr node) {
  Expr expr = At(ExprKind::kTest, Take().line);
  const bool negated = SkipName("not");
  HEARTH_ASSIGN_OR_RETURN(expr.name, ExpectName());
  if (!IsTest(expr.name)) {
    return SyntaxError(
        path_, expr.line,
        absl::StrCat("unknown test '", expr.name, "'; known tests are ", KnownTests()));
  }
  expr.args.push_back(std::move(node));
  const Token& token = Current();
  if (token.IsOperator("(")) {
    HEARTH_ASSIGN_OR_RETURN(CallArgs args, ParseCallArgs());
    for (ExprPtr& arg : args.positional) expr.args.push_back(std::move(arg));
    expr.keywords = std::move(args.keywords);
  } else if (token.IsName("is")) {
    return Fail("tests cannot be chained with 'is'");
  } else if ((token.kind == TokenKind::kName && token.text != "else" && token.text != "or" &&
              token.text != "and") ||
             token.kind == TokenKind::kString || token.kind == TokenKind::kNumber ||
             token.IsOperator("[") || token.IsOperator("{")) {
    HEARTH_ASSIGN_OR_RETURN(ExprPtr arg, ParsePrimary());
    HEARTH_ASSIGN_OR_RETURN(arg, ParsePostfix(std::move(arg)));
    expr.args.push_back(std::move(arg));
  }
  const int32_t line = expr.line;
  HEARTH_ASSIGN_OR_RETURN(ExprPtr test, Make(std::move(expr)));
  if (!negated) return test;
  return MakeUnary(ExprKind::kNot, line, std::move(test));
}

ExpressionParser::Node ExpressionParser::ParseTargetItem(bool namespaces) {
  const Level level(*this);
  HEARTH_RETURN_IF_ERROR(CheckLevel());
  if (SkipOperator("(")) {
    HEARTH_ASSIGN_OR_RETURN(ExprPtr target, ParseTarget("", false));
    HEARTH_RETURN_IF_ERROR(ExpectOperator(")"));
    return target;
  }
  Expr expr = At(ExprKind::kName, Current().line);
  HEARTH_ASSIGN_OR_RETURN(expr.name, ExpectName());
  static constexpr std::string_view kReserved[] = {"true", "false", "none",
                                                   "True", "False", "None"};
  if (std::find(std::begin(kReserved), std::end(kReserved), expr.name) != std::end(kReserved)) {
    return SyntaxError(path_, expr.line, absl::StrCat("can't assign to '", expr.name, "'"));
  }
  if (namespaces && SkipOperator(".")) {
    expr.kind = ExprKind::kNamespaceRef;
    HEARTH_ASSIGN_OR_RETURN(expr.attribute, ExpectName());
  }
  return Make(std::move(expr));
}

ExpressionParser::Node ExpressionParser::ParseTarget(std::string_view stop_name, bool namespaces) {
  Expr expr = At(ExprKind::kTuple, Current().line);
  HEARTH_ASSIGN_OR_RETURN(ExprPtr first, ParseTargetItem(namespaces));
  if (!Current().IsOperator(",")) return first;
  expr.args.push_back(std::move(first));
  while (SkipOperator(",") && !AtTupleEnd(stop_name) && !Current().IsOperator("=")) {
    HEARTH_ASSIGN_OR_RETURN(ExprPtr next, ParseTargetItem(namespaces));
    expr.args.push_back(std::move(next));
  }
  return Make(std::move(expr));
}

}  // namespace hearth::jinja
