// The state of one rendering: scopes, output, budget, and the objects that live as long as it does.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

#include "runtime/model/chat/jinja_ast.h"
#include "runtime/model/chat/jinja_interpreter.h"
#include "runtime/model/chat/jinja_limits.h"
#include "runtime/model/chat/jinja_value.h"

namespace hearth::jinja {

// The names of one block, macro call or loop iteration. Names that are not here are looked for in
// the scope around it.
struct Scope {
  std::shared_ptr<Scope> parent;
  absl::flat_hash_map<std::string, Value> names;
};

struct Macro : MacroObject {
  const Stmt* stmt = nullptr;
  std::shared_ptr<Scope> scope;  // around the definition
};

// A running {% for %}: what `loop` shows. Items pass its `if` only when they are asked for.
struct LoopObject {
  const Stmt* stmt = nullptr;
  std::shared_ptr<Scope> scope;  // around the loop
  std::vector<Value> source;
  size_t next_index = 0;       // of source: items before it have been looked at
  std::deque<Value> accepted;  // passed the filter and not yet run
  int64_t index0 = -1;
  std::optional<int64_t> length;
  Value previous;
  Value current;
  std::optional<Value> last_changed;
};

class Renderer {
 public:
  Renderer(const Template& parsed, const RenderInputs& inputs);
  absl::StatusOr<std::string> Run();

 private:
  using Result = absl::StatusOr<Value>;
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };
  using FlowResult = absl::StatusOr<Flow>;

  // Counts one level of nested evaluation while it lives.
  class Level {
   public:
    explicit Level(int32_t& depth) : depth_(depth) { ++depth_; }
    ~Level() { --depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    int32_t& depth_;
  };
  absl::Status CheckLevel() const;

  // Statements: jinja_renderer.cc.
  FlowResult Execute(const Block& block);
  FlowResult ExecuteStmt(const Stmt& stmt);
  FlowResult ExecuteIf(const Stmt& stmt);
  FlowResult ExecuteFor(const Stmt& stmt);
  FlowResult ExecuteScoped(const Block& block);
  FlowResult ExecuteWith(const Stmt& stmt);
  FlowResult ExecuteSetBlock(const Stmt& stmt);
  FlowResult ExecuteFilterBlock(const Stmt& stmt);
  absl::Status ExecuteCallBlock(const Stmt& stmt);
  absl::Status Print(const Expr& expr);
  absl::Status Write(std::string_view text);
  // What a block tag leaves: unlike {{ }}, it must be a string already.
  absl::Status WriteText(const Value& value);
  absl::Status Assign(const Expr& target, const Value& value);
  // Runs `block` in a scope of its own with its output in a string.
  FlowResult Capture(const Block& block, std::string* text);
  Value DefineMacro(const Stmt& stmt);

  // Loops: jinja_loop.cc.
  absl::Status FetchItem(LoopObject& loop);  // one more into `accepted`, if there is one
  Result LoopAttribute(LoopObject& loop, const std::string& name);
  Result CallLoopMethod(LoopObject& loop, const std::string& name, const Arguments& arguments);
  absl::StatusOr<int64_t> LoopLength(LoopObject& loop);

  // Expressions: jinja_evaluate.cc.
  Result Evaluate(const Expr& expr);
  Result EvaluateName(const Expr& expr);
  Result EvaluateItems(const Expr& expr);
  Result EvaluateDict(const Expr& expr);
  Result EvaluateAttribute(const Expr& expr);
  Result EvaluateItem(const Expr& expr);
  Result EvaluateSlice(const Expr& expr);
  Result EvaluateCall(const Expr& expr);
  Result EvaluateFilter(const Expr& expr);
  Result EvaluateTest(const Expr& expr);
  Result EvaluateCompare(const Expr& expr);
  Result EvaluateLogic(const Expr& expr);
  Result EvaluateConcat(const Expr& expr);
  Result EvaluateConditional(const Expr& expr);
  Result EvaluateUnary(const Expr& expr);
  // The filter chain `expr` over `input`, which stands where the chain's first input is null.
  Result ApplyFilterChain(const Expr& expr, const Value& input);
  absl::StatusOr<Arguments> EvaluateArguments(const Expr& expr);

  // Calls: jinja_calls.cc.
  Result Call(const Value& callee, const Arguments& arguments);
  Result CallMacro(const Macro& macro, const Arguments& arguments);
  absl::Status BindMacro(const Macro& macro, const Arguments& arguments);
  Result CallFunction(Function function, const Arguments& arguments);
  Result CallRange(const Arguments& arguments);
  absl::StatusOr<Dict> MakeDict(const Arguments& arguments);
  Result CallStrftimeNow(const Arguments& arguments);

  const Template& template_;
  const RenderInputs& inputs_;
  Budget budget_;
  std::shared_ptr<Scope> scope_;
  std::string* out_ = nullptr;
  int32_t line_ = 1;  // where an error would be reported
  int32_t depth_ = 0;
  int32_t macro_depth_ = 0;
  std::vector<std::unique_ptr<NamespaceObject>> namespaces_;
  std::vector<std::unique_ptr<Macro>> macros_;
  std::vector<std::unique_ptr<LoopObject>> loops_;
};

}  // namespace hearth::jinja
