// The statement grammar: what stands between {% and %}, and the blocks that they open and close.
#include "runtime/model/chat/jinja_parser.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/model/chat/jinja_expression_parser.h"
#include "runtime/model/chat/jinja_lexer.h"

namespace hearth::jinja {
namespace {

using EndNames = std::initializer_list<std::string_view>;

class Parser : private ExpressionParser {
 public:
  Parser(std::vector<Token> tokens, const std::string& path)
      : ExpressionParser(std::move(tokens), path) {}

  absl::StatusOr<Template> Run() {
    Template result;
    HEARTH_ASSIGN_OR_RETURN(result.body, ParseBlock({}));
    result.path = path();
    return result;
  }

 private:
  // Where `break` and `continue` may stand: inside a loop, but not across a macro.
  class LoopScope {
   public:
    LoopScope(Parser& parser, bool in_loop)
        : parser_(parser), before_(std::exchange(parser.in_loop_, in_loop)) {}
    ~LoopScope() { parser_.in_loop_ = before_; }
    LoopScope(const LoopScope&) = delete;
    LoopScope& operator=(const LoopScope&) = delete;

   private:
    Parser& parser_;
    bool before_;
  };

  bool AtEndName(EndNames ends) const {
    return std::any_of(ends.begin(), ends.end(),
                       [this](std::string_view name) { return Current().IsName(name); });
  }

  // Statements up to a block tag named in `ends`; stops at that name. Without `ends`, to the end.
  absl::StatusOr<Block> ParseBlock(EndNames ends) {
    const Level level(*this);
    HEARTH_RETURN_IF_ERROR(CheckLevel());
    Block block;
    while (Current().kind != TokenKind::kEnd) {
      Stmt stmt;
      stmt.line = Current().line;
      if (Current().kind == TokenKind::kData) {
        stmt.text = Take().text;
      } else if (Current().kind == TokenKind::kVariableBegin) {
        Take();
        stmt.kind = StmtKind::kPrint;
        HEARTH_ASSIGN_OR_RETURN(ExprPtr expr, ParseTuple(Conditional::kAllowed));
        stmt.exprs.push_back(std::move(expr));
        HEARTH_RETURN_IF_ERROR(Expect(TokenKind::kVariableEnd));
      } else {
        HEARTH_RETURN_IF_ERROR(Expect(TokenKind::kBlockBegin));
        if (AtEndName(ends)) return block;
        HEARTH_RETURN_IF_ERROR(ParseStatement(stmt));
        HEARTH_RETURN_IF_ERROR(Expect(TokenKind::kBlockEnd));
      }
      block.push_back(std::make_unique<const Stmt>(std::move(stmt)));
    }
    if (ends.size() == 0) return block;
    return Fail(
        absl::StrCat("the template ends inside a block; expected '", ToAbsl(*ends.begin()), "'"));
  }

  // The body of a block tag, whose "%}" is due: up to and with one of `ends`.
  absl::StatusOr<Block> ParseBody(EndNames ends, std::string* end_name = nullptr) {
    SkipOperator(":");
    HEARTH_RETURN_IF_ERROR(Expect(TokenKind::kBlockEnd));
    HEARTH_ASSIGN_OR_RETURN(Block body, ParseBlock(ends));
    const Token end = Take();
    if (end_name != nullptr) *end_name = end.text;
    return body;
  }

  absl::Status ParseStatement(Stmt& stmt) {
    using Handler = absl::Status (Parser::*)(Stmt&);
    static constexpr std::pair<std::string_view, Handler> kHandlers[] = {
        {"if", &Parser::ParseIf},          {"for", &Parser::ParseFor},
        {"set", &Parser::ParseSet},        {"macro", &Parser::ParseMacro},
        {"call", &Parser::ParseCallBlock}, {"filter", &Parser::ParseFilterBlock},
        {"with", &Parser::ParseWith},      {"generation", &Parser::ParseGeneration},
        {"print", &Parser::ParsePrint},    {"break", &Parser::ParseJump},
        {"continue", &Parser::ParseJump}};
    if (Current().kind != TokenKind::kName) return Unexpected("a tag name");
    for (const auto& [name, handler] : kHandlers) {
      if (!Current().IsName(name)) continue;
      stmt.name = Take().text;
      return (this->*handler)(stmt);
    }
    return Fail(absl::StrCat("unknown tag '", Current().text,
                             "'; known tags are break, call, continue, filter, for, generation, "
                             "if, macro, print, raw, set, with"));
  }

  absl::Status ParseIf(Stmt& stmt) {
    stmt.kind = StmtKind::kIf;
    std::string end = "elif";
    while (end == "elif") {
      Branch branch;
      HEARTH_ASSIGN_OR_RETURN(branch.condition, ParseTuple(Conditional::kNotAllowed));
      HEARTH_ASSIGN_OR_RETURN(branch.body, ParseBody({"endif", "else", "elif"}, &end));
      stmt.branches.push_back(std::move(branch));
    }
    if (end == "else") {
      HEARTH_ASSIGN_OR_RETURN(stmt.else_body, ParseBody({"endif"}));
    }
    return absl::OkStatus();
  }

  absl::Status ParseFor(Stmt& stmt) {
    stmt.kind = StmtKind::kFor;
    HEARTH_ASSIGN_OR_RETURN(stmt.target, ParseTarget("in", false));
    if (stmt.target->kind == ExprKind::kName && stmt.target->name == "loop") {
      return SyntaxError(path(), stmt.line, "can't assign to 'loop' in a loop's target");
    }
    if (!SkipName("in")) return Unexpected("'in'");
    stmt.exprs.resize(2);
    HEARTH_ASSIGN_OR_RETURN(stmt.exprs[0], ParseTuple(Conditional::kNotAllowed, "recursive"));
    if (SkipName("if")) {
      HEARTH_ASSIGN_OR_RETURN(stmt.exprs[1], ParseExpression());
    }
    if (Current().IsName("recursive")) return Fail("recursive loops are not supported");
    std::string end;
    {
      const LoopScope scope(*this, true);
      HEARTH_ASSIGN_OR_RETURN(stmt.body, ParseBody({"endfor", "else"}, &end));
    }
    if (end == "else") {
      HEARTH_ASSIGN_OR_RETURN(stmt.else_body, ParseBody({"endfor"}));
    }
    return absl::OkStatus();
  }

  absl::Status ParseSet(Stmt& stmt) {
    HEARTH_ASSIGN_OR_RETURN(stmt.target, ParseTarget("", true));
    stmt.exprs.resize(1);
    if (SkipOperator("=")) {
      stmt.kind = StmtKind::kSet;
      HEARTH_ASSIGN_OR_RETURN(stmt.exprs[0], ParseTuple(Conditional::kAllowed));
      return absl::OkStatus();
    }
    stmt.kind = StmtKind::kSetBlock;
    HEARTH_ASSIGN_OR_RETURN(stmt.exprs[0], ParseFilters(nullptr, false));
    HEARTH_ASSIGN_OR_RETURN(stmt.body, ParseBody({"endset"}));
    return absl::OkStatus();
  }

  absl::Status ParseParams(Stmt& stmt) {
    HEARTH_RETURN_IF_ERROR(ExpectOperator("("));
    while (!Current().IsOperator(")")) {
      if (!stmt.params.empty()) HEARTH_RETURN_IF_ERROR(ExpectOperator(","));
      Param param;
      HEARTH_ASSIGN_OR_RETURN(param.name, ExpectName());
      for (const Param& other : stmt.params) {
        if (other.name == param.name) {
          return Fail(absl::StrCat("the parameter '", param.name, "' is repeated"));
        }
      }
      if (SkipOperator("=")) {
        HEARTH_ASSIGN_OR_RETURN(param.default_value, ParseExpression());
      } else if (!stmt.params.empty() && stmt.params.back().default_value) {
        return Fail("a parameter without a default after one with a default");
      }
      stmt.params.push_back(std::move(param));
    }
    return ExpectOperator(")");
  }

  absl::Status ParseMacroBody(Stmt& stmt, std::string_view end) {
    const ImplicitReads before = implicit_reads();
    const LoopScope scope(*this, false);
    HEARTH_ASSIGN_OR_RETURN(stmt.body, ParseBody({end}));
    stmt.reads_caller = implicit_reads().caller_count > before.caller_count;
    stmt.reads_kwargs = implicit_reads().kwargs_count > before.kwargs_count;
    stmt.reads_varargs = implicit_reads().varargs_count > before.varargs_count;
    return absl::OkStatus();
  }

  absl::Status ParseMacro(Stmt& stmt) {
    stmt.kind = StmtKind::kMacro;
    HEARTH_ASSIGN_OR_RETURN(stmt.name, ExpectName());
    HEARTH_RETURN_IF_ERROR(ParseParams(stmt));
    return ParseMacroBody(stmt, "endmacro");
  }

  absl::Status ParseCallBlock(Stmt& stmt) {
    stmt.kind = StmtKind::kCallBlock;
    stmt.name = "caller";
    if (Current().IsOperator("(")) HEARTH_RETURN_IF_ERROR(ParseParams(stmt));
    HEARTH_ASSIGN_OR_RETURN(ExprPtr call, ParseExpression());
    if (call->kind != ExprKind::kCall) return SyntaxError(path(), stmt.line, "expected a call");
    stmt.exprs.push_back(std::move(call));
    return ParseMacroBody(stmt, "endcall");
  }

  absl::Status ParseFilterBlock(Stmt& stmt) {
    stmt.kind = StmtKind::kFilterBlock;
    HEARTH_ASSIGN_OR_RETURN(ExprPtr filters, ParseFilters(nullptr, true));
    stmt.exprs.push_back(std::move(filters));
    HEARTH_ASSIGN_OR_RETURN(stmt.body, ParseBody({"endfilter"}));
    return absl::OkStatus();
  }

  absl::Status ParseWith(Stmt& stmt) {
    stmt.kind = StmtKind::kWith;
    while (Current().kind != TokenKind::kBlockEnd) {
      if (!stmt.params.empty()) HEARTH_RETURN_IF_ERROR(ExpectOperator(","));
      Param param;
      HEARTH_ASSIGN_OR_RETURN(param.name, ExpectName());
      HEARTH_RETURN_IF_ERROR(ExpectOperator("="));
      HEARTH_ASSIGN_OR_RETURN(param.default_value, ParseExpression());
      stmt.params.push_back(std::move(param));
    }
    HEARTH_ASSIGN_OR_RETURN(stmt.body, ParseBody({"endwith"}));
    return absl::OkStatus();
  }

  // Marks what the assistant wrote, for training; here its body is printed as it stands.
  absl::Status ParseGeneration(Stmt& stmt) {
    stmt.kind = StmtKind::kScope;
    const LoopScope scope(*this, false);
    HEARTH_ASSIGN_OR_RETURN(stmt.body, ParseBody({"endgeneration"}));
    return absl::OkStatus();
  }

  absl::Status ParsePrint(Stmt& stmt) {
    stmt.kind = StmtKind::kPrint;
    while (Current().kind != TokenKind::kBlockEnd) {
      if (!stmt.exprs.empty()) HEARTH_RETURN_IF_ERROR(ExpectOperator(","));
      HEARTH_ASSIGN_OR_RETURN(ExprPtr expr, ParseExpression());
      stmt.exprs.push_back(std::move(expr));
    }
    return absl::OkStatus();
  }

  absl::Status ParseJump(Stmt& stmt) {
    stmt.kind = stmt.name == "break" ? StmtKind::kBreak : StmtKind::kContinue;
    if (in_loop_) return absl::OkStatus();
    return Fail(absl::StrCat("'", stmt.name, "' outside of a loop"));
  }

  bool in_loop_ = false;
};

}  // namespace

absl::StatusOr<Template> ParseTemplate(std::string_view source, const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source, path));
  return Parser(std::move(tokens), path).Run();
}

}  // namespace hearth::jinja
