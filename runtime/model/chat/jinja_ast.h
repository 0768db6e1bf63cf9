// The parsed template: expressions and statements, immutable after parsing.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/model/chat/jinja_operators.h"
#include "runtime/model/chat/jinja_value.h"

namespace hearth::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<const Expr>;

enum class ExprKind : uint8_t {
  kConstant,      // value
  kName,          // name
  kNamespaceRef,  // target only: name, attribute in `attribute`
  kList,          // args
  kTuple,         // args
  kDict,          // args: key, value, key, value...
  kAttribute,     // args[0].name
  kItem,          // args[0][args[1]]
  kSlice,         // args[0][args[1]:args[2]:args[3]], each of the bounds may be null
  kCall,          // args[0](args[1]..., keywords)
  kFilter,        // args[0] | name(args[1]..., keywords); args[0] is null in a filter block
  kTest,          // args[0] is name(args[1]..., keywords)
  kNegate,
  kPlus,
  kNot,
  kBinary,   // args[0] op args[1]
  kCompare,  // args[0] compare_ops[0] args[1] compare_ops[1] args[2]..., as Python chains them
  kAnd,
  kOr,
  kConcat,       // args[0] ~ args[1] ~ ...
  kConditional,  // args[0] if args[1] else args[2], which may be null
};

struct KeywordExpr {
  std::string name;
  ExprPtr value;
};

struct Expr {
  ExprKind kind = ExprKind::kConstant;
  int32_t line = 0;
  int32_t depth = 1;  // of the tree below, this node counted
  Value value;
  std::string name;
  std::string attribute;
  BinaryOp op = BinaryOp::kAdd;
  std::vector<CompareOp> compare_ops;
  std::vector<ExprPtr> args;
  std::vector<KeywordExpr> keywords;
};

struct Stmt;
using Block = std::vector<std::unique_ptr<const Stmt>>;

enum class StmtKind : uint8_t {
  kText,         // text
  kPrint,        // exprs, one after the other
  kIf,           // branches, else_body
  kFor,          // target, exprs[0] iterated, exprs[1] filter or null; body, else_body
  kSet,          // target, exprs[0]
  kSetBlock,     // target, body, exprs[0] filter chain or null
  kMacro,        // name, params, body
  kCallBlock,    // exprs[0] is the call; params, body are the caller
  kFilterBlock,  // exprs[0] filter chain; body
  kWith,         // params; body
  kScope,        // body, in a scope of its own: {% generation %}
  kBreak,
  kContinue,
};

struct Branch {
  ExprPtr condition;
  Block body;
};

struct Param {
  std::string name;
  ExprPtr default_value;  // may be null
};

struct Stmt {
  StmtKind kind = StmtKind::kText;
  int32_t line = 0;
  std::string text;
  std::string name;
  ExprPtr target;
  std::vector<ExprPtr> exprs;
  std::vector<Branch> branches;
  std::vector<Param> params;
  Block body;
  Block else_body;
  // Of a macro: whether its body reads these names that calls fill in.
  bool reads_caller = false;
  bool reads_kwargs = false;
  bool reads_varargs = false;
};

struct Template {
  std::string path;  // for messages
  Block body;
};

}  // namespace hearth::jinja
