// Calls: macros, global functions, methods.
#include <algorithm>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/model/chat/jinja_arguments.h"
#include "runtime/model/chat/jinja_methods.h"
#include "runtime/model/chat/jinja_operators.h"
#include "runtime/model/chat/jinja_renderer.h"

namespace hearth::jinja {

Renderer::Result Renderer::Call(const Value& callee, const Arguments& arguments) {
  switch (callee.kind()) {
    case Kind::kUndefined:
      return UndefinedError(callee);
    case Kind::kMacro:
      return CallMacro(static_cast<const Macro&>(*callee.AsMacro()), arguments);
    case Kind::kFunction:
      return CallFunction(callee.AsFunction(), arguments);
    case Kind::kMethod: {
      const MethodObject& method = callee.AsMethod();
      if (method.self.kind() == Kind::kLoop) {
        return CallLoopMethod(*method.self.AsLoop(), method.name, arguments);
      }
      return CallMethod(budget_, method, arguments);
    }
    case Kind::kLoop:
      return absl::UnimplementedError("recursive loops are not supported");
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("'", ToAbsl(TypeName(callee)), "' object is not callable"));
  }
}

Renderer::Result Renderer::CallMacro(const Macro& macro, const Arguments& arguments) {
  if (macro_depth_ >= kMacroDepthMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("macros called deeper than ", kMacroDepthMax, " levels"));
  }
  HEARTH_RETURN_IF_ERROR(budget_.ChargeIterations(1));
  const std::shared_ptr<Scope> outer = scope_;
  scope_ = std::make_shared<Scope>();
  scope_->parent = macro.scope;
  ++macro_depth_;
  std::string text;
  absl::Status status = BindMacro(macro, arguments);
  if (status.ok()) {
    std::string* const outer_text = std::exchange(out_, &text);
    status = Execute(macro.stmt->body).status();
    out_ = outer_text;
  }
  --macro_depth_;
  scope_ = outer;
  HEARTH_RETURN_IF_ERROR(status);
  return MakeString(budget_, std::move(text));
}

// Fills the macro's scope: parameters, defaults, and the names that its body reads implicitly.
absl::Status Renderer::BindMacro(const Macro& macro, const Arguments& arguments) {
  const Stmt& stmt = *macro.stmt;
  std::vector<KeywordArgument> keywords = arguments.keywords;
  const auto take = [&keywords](const std::string& name) {
    std::optional<Value> value;
    const auto it = std::find_if(keywords.begin(), keywords.end(),
                                 [&name](const KeywordArgument& k) { return k.name == name; });
    if (it == keywords.end()) return value;
    value = it->value;
    keywords.erase(it);
    return value;
  };
  bool has_caller = false;
  for (size_t i = 0; i < stmt.params.size(); ++i) {
    const Param& param = stmt.params[i];
    has_caller = has_caller || param.name == "caller";
    std::optional<Value> value;
    if (i < arguments.positional.size()) {
      value = arguments.positional[i];
    } else {
      value = take(param.name);
    }
    if (!value && param.default_value) {
      HEARTH_ASSIGN_OR_RETURN(value, Evaluate(*param.default_value));
    }
    scope_->names[param.name] =
        value ? *value
              : Value::Undefined(absl::StrCat("parameter '", param.name, "' was not provided"));
  }
  if (stmt.reads_caller && !has_caller) {
    std::optional<Value> caller = take("caller");
    scope_->names["caller"] = caller ? *caller : Value::Undefined("No caller defined");
  }
  if (stmt.reads_kwargs) {
    Dict rest;
    for (const KeywordArgument& k : keywords) {
      HEARTH_RETURN_IF_ERROR(rest.Set(Value::String(k.name), k.value));
    }
    HEARTH_ASSIGN_OR_RETURN(scope_->names["kwargs"], Value::OfDict(std::move(rest)));
  } else if (!keywords.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "macro '", macro.name, "' takes no keyword argument '", keywords.front().name, "'"));
  }
  const size_t extra_from = std::min(stmt.params.size(), arguments.positional.size());
  if (stmt.reads_varargs) {
    HEARTH_ASSIGN_OR_RETURN(
        scope_->names["varargs"],
        Value::Tuple({arguments.positional.begin() + static_cast<std::ptrdiff_t>(extra_from),
                      arguments.positional.end()}));
  } else if (arguments.positional.size() > stmt.params.size()) {
    return absl::InvalidArgumentError(absl::StrCat("macro '", macro.name, "' takes not more than ",
                                                   stmt.params.size(), " argument(s)"));
  }
  return absl::OkStatus();
}

Renderer::Result Renderer::CallFunction(Function function, const Arguments& arguments) {
  switch (function) {
    case Function::kRange:
      return CallRange(arguments);
    case Function::kDict: {
      HEARTH_ASSIGN_OR_RETURN(Dict dict, MakeDict(arguments));
      return Value::OfDict(std::move(dict));
    }
    case Function::kNamespace: {
      HEARTH_ASSIGN_OR_RETURN(Dict dict, MakeDict(arguments));
      namespaces_.push_back(std::make_unique<NamespaceObject>());
      namespaces_.back()->attributes = std::move(dict);
      return Value::OfNamespace(namespaces_.back().get());
    }
    case Function::kRaiseException: {
      HEARTH_ASSIGN_OR_RETURN(
          const BoundArguments bound,
          Bind(arguments, {.params = {"message"}, .required_count = 1}, "raise_exception()"));
      HEARTH_ASSIGN_OR_RETURN(const std::string message, Str(bound[0]));
      return absl::InvalidArgumentError(message);
    }
    case Function::kStrftimeNow:
      return CallStrftimeNow(arguments);
  }
  return absl::InternalError("a function of an unknown kind");
}

Renderer::Result Renderer::CallRange(const Arguments& arguments) {
  static constexpr int64_t kBoundMax = int64_t{1} << 40;  // keeps all of a range's arithmetic exact
  HEARTH_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      Bind(arguments, {.params = {"start", "stop", "step"}, .required_count = 1}, "range()"));
  if (!arguments.keywords.empty()) {
    return absl::InvalidArgumentError("range() takes no keyword arguments");
  }
  HEARTH_ASSIGN_OR_RETURN(int64_t start, bound.IntAt(0, 0));
  HEARTH_ASSIGN_OR_RETURN(int64_t stop, bound.IntAt(1, 0));
  HEARTH_ASSIGN_OR_RETURN(const int64_t step, bound.IntAt(2, 1));
  if (!bound.Has(1)) stop = std::exchange(start, 0);
  for (const int64_t value : {start, stop, step}) {
    if (value < -kBoundMax || value > kBoundMax) {
      return absl::OutOfRangeError(absl::StrCat("range() with the bound ", value));
    }
  }
  if (step == 0) return absl::InvalidArgumentError("range() arg 3 must not be zero");
  Value range = Value::Range(start, stop, step);
  if (range.AsRange().count > kRangeItemsMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a range of ", range.AsRange().count, " items, at most ", kRangeItemsMax));
  }
  return range;
}

absl::StatusOr<Dict> Renderer::MakeDict(const Arguments& arguments) {
  Dict dict;
  if (arguments.positional.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("dict expected at most 1 argument, found ", arguments.positional.size()));
  }
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.IsDict()) {
      HEARTH_RETURN_IF_ERROR(budget_.ChargeIterations(*LengthOf(source)));
      dict = source.AsDict();
    } else {
      HEARTH_ASSIGN_OR_RETURN(const std::vector<Value> pairs, ItemsOf(budget_, source));
      for (const Value& pair : pairs) {
        HEARTH_ASSIGN_OR_RETURN(std::vector<Value> items, ItemsOf(budget_, pair));
        if (items.size() != 2) {
          return absl::InvalidArgumentError(
              absl::StrCat("a dict is made of pairs, found an element of length ", items.size()));
        }
        HEARTH_RETURN_IF_ERROR(dict.Set(items[0], items[1]));
      }
    }
  }
  for (const KeywordArgument& keyword : arguments.keywords) {
    HEARTH_RETURN_IF_ERROR(dict.Set(Value::String(keyword.name), keyword.value));
  }
  return dict;
}

Renderer::Result Renderer::CallStrftimeNow(const Arguments& arguments) {
  static constexpr std::string_view kDirectives = "aAbBcdHIjmMpSuUwWxXyYVG%";
  HEARTH_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      Bind(arguments, {.params = {"format"}, .required_count = 1}, "strftime_now()"));
  if (!inputs_.now) {
    return absl::FailedPreconditionError(
        "the template prints the time with strftime_now(), and no time was given");
  }
  if (!bound[0].IsString()) return absl::InvalidArgumentError("strftime_now() needs a str");
  const std::string& format = bound[0].AsString();
  if (format.size() > 256) return absl::InvalidArgumentError("strftime_now(): a long format");
  std::tm time{};
  time.tm_year = static_cast<int>(inputs_.now->year()) - 1900;
  time.tm_mon = inputs_.now->month() - 1;
  time.tm_mday = inputs_.now->day();
  time.tm_hour = inputs_.now->hour();
  time.tm_min = inputs_.now->minute();
  time.tm_sec = inputs_.now->second();
  time.tm_wday = (static_cast<int>(absl::GetWeekday(*inputs_.now)) + 1) % 7;
  time.tm_yday = absl::GetYearDay(*inputs_.now) - 1;
  std::string text;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      text += format[i];
      continue;
    }
    ++i;
    if (i >= format.size() || kDirectives.find(format[i]) == std::string_view::npos) {
      return absl::UnimplementedError(
          absl::StrCat("strftime_now(): a directive that is not supported in '", format, "'"));
    }
    const char directive[] = {'%', format[i], '\0'};
    char piece[128];
    text.append(piece, std::strftime(piece, sizeof(piece), directive, &time));
  }
  return MakeString(budget_, std::move(text));
}

}  // namespace hearth::jinja
