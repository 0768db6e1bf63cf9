// Statements.
#include "runtime/model/chat/jinja_renderer.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/model/chat/jinja_operators.h"

namespace hearth::jinja {

Renderer::Renderer(const Template& parsed, const RenderInputs& inputs)
    : template_(parsed), inputs_(inputs), scope_(std::make_shared<Scope>()) {
  scope_->names = {{"range", Value::OfFunction(Function::kRange)},
                   {"dict", Value::OfFunction(Function::kDict)},
                   {"namespace", Value::OfFunction(Function::kNamespace)},
                   {"raise_exception", Value::OfFunction(Function::kRaiseException)},
                   {"strftime_now", Value::OfFunction(Function::kStrftimeNow)}};
  for (const KeywordArgument& variable : inputs.variables) {
    scope_->names[variable.name] = variable.value;
  }
}

absl::StatusOr<std::string> Renderer::Run() {
  std::string out;
  out_ = &out;
  const FlowResult flow = Execute(template_.body);
  if (!flow.ok()) {
    return Annotate(flow.status(), absl::StrCat(template_.path, ":", line_));
  }
  return out;
}

absl::Status Renderer::CheckLevel() const {
  if (depth_ <= kEvaluationDepthMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("evaluation nested deeper than ", kEvaluationDepthMax, " levels"));
}

Renderer::FlowResult Renderer::Execute(const Block& block) {
  const Level level(depth_);
  HEARTH_RETURN_IF_ERROR(CheckLevel());
  for (const std::unique_ptr<const Stmt>& stmt : block) {
    HEARTH_ASSIGN_OR_RETURN(const Flow flow, ExecuteStmt(*stmt));
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Renderer::FlowResult Renderer::ExecuteStmt(const Stmt& stmt) {
  line_ = stmt.line;
  switch (stmt.kind) {
    case StmtKind::kText:
      HEARTH_RETURN_IF_ERROR(Write(stmt.text));
      return Flow::kNormal;
    case StmtKind::kPrint:
      for (const ExprPtr& expr : stmt.exprs) HEARTH_RETURN_IF_ERROR(Print(*expr));
      return Flow::kNormal;
    case StmtKind::kIf:
      return ExecuteIf(stmt);
    case StmtKind::kFor:
      return ExecuteFor(stmt);
    case StmtKind::kSet: {
      HEARTH_ASSIGN_OR_RETURN(const Value value, Evaluate(*stmt.exprs[0]));
      HEARTH_RETURN_IF_ERROR(Assign(*stmt.target, value));
      return Flow::kNormal;
    }
    case StmtKind::kSetBlock:
      return ExecuteSetBlock(stmt);
    case StmtKind::kMacro:
      scope_->names[stmt.name] = DefineMacro(stmt);
      return Flow::kNormal;
    case StmtKind::kCallBlock:
      HEARTH_RETURN_IF_ERROR(ExecuteCallBlock(stmt));
      return Flow::kNormal;
    case StmtKind::kFilterBlock:
      return ExecuteFilterBlock(stmt);
    case StmtKind::kWith:
      return ExecuteWith(stmt);
    case StmtKind::kScope:
      return ExecuteScoped(stmt.body);
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNormal;
}

absl::Status Renderer::Write(std::string_view text) {
  if (text.size() > kOutputBytesMax - out_->size()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("an output of more than ", kOutputBytesMax, " bytes"));
  }
  out_->append(text);
  return absl::OkStatus();
}

absl::Status Renderer::Print(const Expr& expr) {
  HEARTH_ASSIGN_OR_RETURN(const Value value, Evaluate(expr));
  if (value.IsString()) return Write(value.AsString());
  HEARTH_ASSIGN_OR_RETURN(const std::string text, Str(value));
  HEARTH_RETURN_IF_ERROR(budget_.ChargeString(text.size()));
  return Write(text);
}

Renderer::FlowResult Renderer::ExecuteIf(const Stmt& stmt) {
  for (const Branch& branch : stmt.branches) {
    HEARTH_ASSIGN_OR_RETURN(const Value condition, Evaluate(*branch.condition));
    if (IsTruthy(condition)) return Execute(branch.body);
  }
  return Execute(stmt.else_body);
}

Renderer::FlowResult Renderer::ExecuteFor(const Stmt& stmt) {
  HEARTH_ASSIGN_OR_RETURN(const Value iterable, Evaluate(*stmt.exprs[0]));
  line_ = stmt.line;
  loops_.push_back(std::make_unique<LoopObject>());
  LoopObject& loop = *loops_.back();
  loop.stmt = &stmt;
  loop.scope = scope_;
  HEARTH_ASSIGN_OR_RETURN(loop.source, ItemsOf(budget_, iterable));
  // Python runs `else` where no iteration reached the end of the body: Jinja's compiled code does.
  bool finished_one = false;
  absl::Status status;
  while (true) {
    if (loop.accepted.empty()) status = FetchItem(loop);
    if (!status.ok() || loop.accepted.empty()) break;
    ++loop.index0;
    loop.previous = std::exchange(loop.current, loop.accepted.front());
    loop.accepted.pop_front();
    scope_ = std::make_shared<Scope>();
    scope_->parent = loop.scope;
    scope_->names["loop"] = Value::OfLoop(&loop);
    status = Assign(*stmt.target, loop.current);
    if (!status.ok()) break;
    const FlowResult flow = Execute(stmt.body);
    status = flow.status();
    if (!status.ok() || *flow == Flow::kBreak) break;
    if (*flow == Flow::kNormal) finished_one = true;
  }
  scope_ = loop.scope;
  HEARTH_RETURN_IF_ERROR(status);
  if (finished_one) return Flow::kNormal;
  return Execute(stmt.else_body);
}

Renderer::FlowResult Renderer::ExecuteScoped(const Block& block) {
  const std::shared_ptr<Scope> outer = scope_;
  scope_ = std::make_shared<Scope>();
  scope_->parent = outer;
  FlowResult flow = Execute(block);
  scope_ = outer;
  return flow;
}

Renderer::FlowResult Renderer::ExecuteWith(const Stmt& stmt) {
  auto inner = std::make_shared<Scope>();
  inner->parent = scope_;
  for (const Param& param : stmt.params) {  // evaluated outside: they do not see each other
    HEARTH_ASSIGN_OR_RETURN(inner->names[param.name], Evaluate(*param.default_value));
  }
  const std::shared_ptr<Scope> outer = std::exchange(scope_, inner);
  FlowResult flow = Execute(stmt.body);
  scope_ = outer;
  return flow;
}

Renderer::FlowResult Renderer::Capture(const Block& block, std::string* text) {
  std::string* const outer = std::exchange(out_, text);
  FlowResult flow = ExecuteScoped(block);
  out_ = outer;
  return flow;
}

Renderer::FlowResult Renderer::ExecuteSetBlock(const Stmt& stmt) {
  std::string text;
  HEARTH_ASSIGN_OR_RETURN(const Flow flow, Capture(stmt.body, &text));
  if (flow != Flow::kNormal) return flow;
  HEARTH_ASSIGN_OR_RETURN(Value value, MakeString(budget_, std::move(text)));
  if (stmt.exprs[0]) {
    HEARTH_ASSIGN_OR_RETURN(value, ApplyFilterChain(*stmt.exprs[0], value));
  }
  HEARTH_RETURN_IF_ERROR(Assign(*stmt.target, value));
  return Flow::kNormal;
}

Renderer::FlowResult Renderer::ExecuteFilterBlock(const Stmt& stmt) {
  std::string text;
  HEARTH_ASSIGN_OR_RETURN(const Flow flow, Capture(stmt.body, &text));
  if (flow != Flow::kNormal) return flow;
  HEARTH_ASSIGN_OR_RETURN(Value value, MakeString(budget_, std::move(text)));
  HEARTH_ASSIGN_OR_RETURN(value, ApplyFilterChain(*stmt.exprs[0], value));
  HEARTH_RETURN_IF_ERROR(WriteText(value));
  return Flow::kNormal;
}

Value Renderer::DefineMacro(const Stmt& stmt) {
  macros_.push_back(std::make_unique<Macro>());
  Macro& macro = *macros_.back();
  macro.name = stmt.name;
  macro.stmt = &stmt;
  macro.scope = scope_;
  return Value::OfMacro(&macro);
}

absl::Status Renderer::ExecuteCallBlock(const Stmt& stmt) {
  const Expr& call = *stmt.exprs[0];
  HEARTH_ASSIGN_OR_RETURN(const Value callee, Evaluate(*call.args[0]));
  HEARTH_ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(call));
  arguments.keywords.push_back({"caller", DefineMacro(stmt)});
  line_ = stmt.line;
  HEARTH_ASSIGN_OR_RETURN(const Value value, Call(callee, arguments));
  return WriteText(value);
}

absl::Status Renderer::WriteText(const Value& value) {
  if (value.IsString()) return Write(value.AsString());
  return absl::InvalidArgumentError(
      absl::StrCat("a block's result must be a str, found '", ToAbsl(TypeName(value)), "'"));
}

absl::Status Renderer::Assign(const Expr& target, const Value& value) {
  if (target.kind == ExprKind::kName) {
    scope_->names[target.name] = value;
    return absl::OkStatus();
  }
  if (target.kind == ExprKind::kNamespaceRef) {
    HEARTH_ASSIGN_OR_RETURN(const Value object, EvaluateName(target));
    if (object.kind() != Kind::kNamespace) {
      return absl::InvalidArgumentError(absl::StrCat("cannot assign the attribute '",
                                                     target.attribute, "' of '", target.name,
                                                     "', which is no namespace"));
    }
    return object.AsNamespace()->attributes.Set(Value::String(target.attribute), value);
  }
  HEARTH_ASSIGN_OR_RETURN(const std::vector<Value> items, ItemsOf(budget_, value));
  if (items.size() != target.args.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot unpack ", items.size(), " values, expected ", target.args.size()));
  }
  for (size_t i = 0; i < items.size(); ++i) {
    HEARTH_RETURN_IF_ERROR(Assign(*target.args[i], items[i]));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> RenderTemplate(const Template& parsed, RenderInputs inputs) {
  return Renderer(parsed, inputs).Run();
}

}  // namespace hearth::jinja
