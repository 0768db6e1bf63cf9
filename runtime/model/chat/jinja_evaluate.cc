// Expressions.
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/model/chat/jinja_access.h"
#include "runtime/model/chat/jinja_filters.h"
#include "runtime/model/chat/jinja_operators.h"
#include "runtime/model/chat/jinja_renderer.h"
#include "runtime/model/chat/jinja_tests.h"

namespace hearth::jinja {

Renderer::Result Renderer::Evaluate(const Expr& expr) {
  const Level level(depth_);
  HEARTH_RETURN_IF_ERROR(CheckLevel());
  switch (expr.kind) {
    case ExprKind::kConstant:
      return expr.value;
    case ExprKind::kName:
    case ExprKind::kNamespaceRef:
      return EvaluateName(expr);
    case ExprKind::kList:
    case ExprKind::kTuple:
      return EvaluateItems(expr);
    case ExprKind::kDict:
      return EvaluateDict(expr);
    case ExprKind::kAttribute:
      return EvaluateAttribute(expr);
    case ExprKind::kItem:
      return EvaluateItem(expr);
    case ExprKind::kSlice:
      return EvaluateSlice(expr);
    case ExprKind::kCall:
      return EvaluateCall(expr);
    case ExprKind::kFilter:
      return EvaluateFilter(expr);
    case ExprKind::kTest:
      return EvaluateTest(expr);
    case ExprKind::kNegate:
    case ExprKind::kPlus:
    case ExprKind::kNot:
      return EvaluateUnary(expr);
    case ExprKind::kBinary: {
      HEARTH_ASSIGN_OR_RETURN(const Value left, Evaluate(*expr.args[0]));
      HEARTH_ASSIGN_OR_RETURN(const Value right, Evaluate(*expr.args[1]));
      line_ = expr.line;
      return Binary(budget_, expr.op, left, right);
    }
    case ExprKind::kCompare:
      return EvaluateCompare(expr);
    case ExprKind::kAnd:
    case ExprKind::kOr:
      return EvaluateLogic(expr);
    case ExprKind::kConcat:
      return EvaluateConcat(expr);
    case ExprKind::kConditional:
      return EvaluateConditional(expr);
  }
  return absl::InternalError("an expression of an unknown kind");
}

Renderer::Result Renderer::EvaluateName(const Expr& expr) {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    const auto it = scope->names.find(expr.name);
    if (it != scope->names.end()) return it->second;
  }
  return Value::Undefined(absl::StrCat("'", expr.name, "' is undefined"));
}

Renderer::Result Renderer::EvaluateItems(const Expr& expr) {
  std::vector<Value> items;
  items.reserve(expr.args.size());
  for (const ExprPtr& arg : expr.args) {
    HEARTH_ASSIGN_OR_RETURN(Value item, Evaluate(*arg));
    items.push_back(std::move(item));
  }
  line_ = expr.line;
  return expr.kind == ExprKind::kList ? Value::List(std::move(items))
                                      : Value::Tuple(std::move(items));
}

Renderer::Result Renderer::EvaluateDict(const Expr& expr) {
  Dict dict;
  for (size_t i = 0; i + 1 < expr.args.size(); i += 2) {
    HEARTH_ASSIGN_OR_RETURN(const Value key, Evaluate(*expr.args[i]));
    HEARTH_ASSIGN_OR_RETURN(Value value, Evaluate(*expr.args[i + 1]));
    HEARTH_RETURN_IF_ERROR(dict.Set(key, std::move(value)));
  }
  return Value::OfDict(std::move(dict));
}

Renderer::Result Renderer::EvaluateAttribute(const Expr& expr) {
  HEARTH_ASSIGN_OR_RETURN(const Value object, Evaluate(*expr.args[0]));
  line_ = expr.line;
  if (object.kind() == Kind::kLoop) return LoopAttribute(*object.AsLoop(), expr.name);
  return GetAttribute(object, expr.name);
}

Renderer::Result Renderer::EvaluateItem(const Expr& expr) {
  HEARTH_ASSIGN_OR_RETURN(const Value object, Evaluate(*expr.args[0]));
  HEARTH_ASSIGN_OR_RETURN(const Value key, Evaluate(*expr.args[1]));
  line_ = expr.line;
  if (object.kind() == Kind::kLoop && key.IsString()) {
    return LoopAttribute(*object.AsLoop(), key.AsString());
  }
  return GetItem(budget_, object, key);
}

Renderer::Result Renderer::EvaluateSlice(const Expr& expr) {
  HEARTH_ASSIGN_OR_RETURN(const Value object, Evaluate(*expr.args[0]));
  Value values[3];
  const Value* bounds[3] = {nullptr, nullptr, nullptr};
  for (size_t i = 0; i < 3; ++i) {
    if (!expr.args[i + 1]) continue;
    HEARTH_ASSIGN_OR_RETURN(values[i], Evaluate(*expr.args[i + 1]));
    bounds[i] = &values[i];
  }
  line_ = expr.line;
  return GetSlice(budget_, object, {.start = bounds[0], .stop = bounds[1], .step = bounds[2]});
}

absl::StatusOr<Arguments> Renderer::EvaluateArguments(const Expr& expr) {
  Arguments arguments;
  for (size_t i = 1; i < expr.args.size(); ++i) {
    HEARTH_ASSIGN_OR_RETURN(Value value, Evaluate(*expr.args[i]));
    arguments.positional.push_back(std::move(value));
  }
  for (const KeywordExpr& keyword : expr.keywords) {
    HEARTH_ASSIGN_OR_RETURN(Value value, Evaluate(*keyword.value));
    arguments.keywords.push_back({keyword.name, std::move(value)});
  }
  line_ = expr.line;
  return arguments;
}

Renderer::Result Renderer::EvaluateCall(const Expr& expr) {
  HEARTH_ASSIGN_OR_RETURN(const Value callee, Evaluate(*expr.args[0]));
  HEARTH_ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(expr));
  return Call(callee, arguments);
}

Renderer::Result Renderer::EvaluateFilter(const Expr& expr) {
  HEARTH_ASSIGN_OR_RETURN(const Value input, Evaluate(*expr.args[0]));
  HEARTH_ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(expr));
  return ApplyFilter(budget_, expr.name, input, arguments);
}

Renderer::Result Renderer::ApplyFilterChain(const Expr& expr, const Value& input) {
  std::vector<const Expr*> chain;  // outermost first
  for (const Expr* filter = &expr; filter != nullptr; filter = filter->args[0].get()) {
    chain.push_back(filter);
  }
  Value value = input;
  while (!chain.empty()) {
    HEARTH_ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(*chain.back()));
    HEARTH_ASSIGN_OR_RETURN(value, ApplyFilter(budget_, chain.back()->name, value, arguments));
    chain.pop_back();
  }
  return value;
}

Renderer::Result Renderer::EvaluateTest(const Expr& expr) {
  HEARTH_ASSIGN_OR_RETURN(const Value value, Evaluate(*expr.args[0]));
  HEARTH_ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(expr));
  HEARTH_ASSIGN_OR_RETURN(const bool passes, ApplyTest(budget_, expr.name, value, arguments));
  return Value::Bool(passes);
}

Renderer::Result Renderer::EvaluateUnary(const Expr& expr) {
  HEARTH_ASSIGN_OR_RETURN(const Value value, Evaluate(*expr.args[0]));
  line_ = expr.line;
  if (expr.kind == ExprKind::kNot) return Value::Bool(!IsTruthy(value));
  return expr.kind == ExprKind::kNegate ? Negate(value) : Plus(value);
}

Renderer::Result Renderer::EvaluateCompare(const Expr& expr) {
  HEARTH_ASSIGN_OR_RETURN(Value left, Evaluate(*expr.args[0]));
  for (size_t i = 0; i < expr.compare_ops.size(); ++i) {
    HEARTH_ASSIGN_OR_RETURN(Value right, Evaluate(*expr.args[i + 1]));
    line_ = expr.line;
    HEARTH_ASSIGN_OR_RETURN(const bool holds, Compare(budget_, expr.compare_ops[i], left, right));
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

Renderer::Result Renderer::EvaluateLogic(const Expr& expr) {
  HEARTH_ASSIGN_OR_RETURN(Value left, Evaluate(*expr.args[0]));
  if (IsTruthy(left) == (expr.kind == ExprKind::kOr)) return left;
  return Evaluate(*expr.args[1]);
}

Renderer::Result Renderer::EvaluateConcat(const Expr& expr) {
  std::string text;
  for (const ExprPtr& arg : expr.args) {
    HEARTH_ASSIGN_OR_RETURN(const Value value, Evaluate(*arg));
    HEARTH_RETURN_IF_ERROR(AppendStr(text, value));
  }
  line_ = expr.line;
  return MakeString(budget_, std::move(text));
}

Renderer::Result Renderer::EvaluateConditional(const Expr& expr) {
  HEARTH_ASSIGN_OR_RETURN(const Value condition, Evaluate(*expr.args[1]));
  if (IsTruthy(condition)) return Evaluate(*expr.args[0]);
  if (expr.args[2]) return Evaluate(*expr.args[2]);
  return Value::Undefined(absl::StrCat("the inline if-expression on line ", expr.line,
                                       " evaluated to false and no else section was defined."));
}

}  // namespace hearth::jinja
