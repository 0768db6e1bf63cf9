// What `loop` offers inside of a {% for %}.
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/model/chat/jinja_operators.h"
#include "runtime/model/chat/jinja_renderer.h"

namespace hearth::jinja {

absl::Status Renderer::FetchItem(LoopObject& loop) {
  const Expr* filter = loop.stmt->exprs[1].get();
  const std::shared_ptr<Scope> outer = scope_;
  absl::Status status;
  while (status.ok() && loop.next_index < loop.source.size()) {
    const Value item = loop.source[loop.next_index++];
    if (filter == nullptr) {
      loop.accepted.push_back(item);
      break;
    }
    scope_ = std::make_shared<Scope>();
    scope_->parent = loop.scope;
    status = Assign(*loop.stmt->target, item);
    if (!status.ok()) break;
    const Result matches = Evaluate(*filter);
    status = matches.status();
    if (status.ok() && IsTruthy(*matches)) {
      loop.accepted.push_back(item);
      break;
    }
  }
  scope_ = outer;
  return status;
}

absl::StatusOr<int64_t> Renderer::LoopLength(LoopObject& loop) {
  if (!loop.length) {
    while (loop.next_index < loop.source.size()) HEARTH_RETURN_IF_ERROR(FetchItem(loop));
    loop.length = loop.index0 + 1 + static_cast<int64_t>(loop.accepted.size());
  }
  return *loop.length;
}

Renderer::Result Renderer::LoopAttribute(LoopObject& loop, const std::string& name) {
  if (name == "index") return Value::Int(loop.index0 + 1);
  if (name == "index0") return Value::Int(loop.index0);
  if (name == "first") return Value::Bool(loop.index0 == 0);
  if (name == "depth") return Value::Int(1);
  if (name == "depth0") return Value::Int(0);
  if (name == "previtem") {
    return loop.index0 == 0 ? Value::Undefined("there is no previous item") : loop.previous;
  }
  if (name == "last" || name == "nextitem") {
    if (loop.accepted.empty()) HEARTH_RETURN_IF_ERROR(FetchItem(loop));
    if (name == "last") return Value::Bool(loop.accepted.empty());
    if (loop.accepted.empty()) return Value::Undefined("there is no next item");
    return loop.accepted.front();
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    HEARTH_ASSIGN_OR_RETURN(const int64_t length, LoopLength(loop));
    if (name == "length") return Value::Int(length);
    return Value::Int(length - loop.index0 - (name == "revindex" ? 0 : 1));
  }
  if (name == "cycle" || name == "changed") return Value::Method(Value::OfLoop(&loop), name);
  return Value::Undefined(
      absl::StrCat("'jinja2.runtime.LoopContext object' has no attribute '", name, "'"));
}

Renderer::Result Renderer::CallLoopMethod(LoopObject& loop, const std::string& name,
                                          const Arguments& arguments) {
  if (!arguments.keywords.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("loop.", name, "() takes no named arguments"));
  }
  const std::vector<Value>& values = arguments.positional;
  if (name == "cycle") {
    if (values.empty()) return absl::InvalidArgumentError("no items for cycling given");
    return values[static_cast<size_t>(loop.index0) % values.size()];
  }
  HEARTH_ASSIGN_OR_RETURN(const Value tuple, Value::Tuple(values));
  const bool changed = !loop.last_changed || !Equals(*loop.last_changed, tuple);
  loop.last_changed = tuple;
  return Value::Bool(changed);
}

}  // namespace hearth::jinja
