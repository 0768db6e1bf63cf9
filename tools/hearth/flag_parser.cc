// CLI11 splits the words; names, counts and values are checked against the fields. Its exceptions
// end here.
#include "tools/hearth/flag_parser.h"

#include <algorithm>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

#include "runtime/base/status.h"
#include "runtime/config/nearest.h"

namespace hearth::cli {
namespace {

const Field* FieldOfFlag(std::string_view word, std::span<const Field> fields) {
  for (const Field& field : fields) {
    if (FlagName(field.name) == word) return &field;
  }
  return nullptr;
}

absl::Status NeedsValue(const Field& field, std::string_view found) {
  std::string message = absl::StrCat(FlagName(field.name), ": needs a value (", field.metavar, ")");
  if (!found.empty()) {
    absl::StrAppend(&message, ", found the flag ", ToAbsl(found), "; write ", FlagName(field.name),
                    "=", ToAbsl(found), " if that is the value");
  }
  return absl::InvalidArgumentError(message);
}

// Words as CLI11 takes them: "--name=" becomes two words, because it would take the next word as
// the value; and a flag where a value is due is refused rather than swallowed.
absl::StatusOr<std::vector<std::string>> Normalise(std::span<const std::string> args,
                                                   std::span<const Field> fields) {
  std::vector<std::string> words;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& word = args[i];
    const size_t equals = word.find('=');
    const Field* field = FieldOfFlag(word.substr(0, equals), fields);
    if (field == nullptr) {
      words.push_back(word);
    } else if (equals != std::string::npos) {
      if (field->kind == FieldKind::kSwitch) {
        return absl::InvalidArgumentError(absl::StrCat(
            FlagName(field->name), ": takes no value, found '", word.substr(equals + 1), "'"));
      }
      words.push_back(equals + 1 == word.size() ? FlagName(field->name) : word);
      if (equals + 1 == word.size()) words.emplace_back();
    } else {
      words.push_back(word);
      if (field->kind == FieldKind::kSwitch) continue;
      if (i + 1 == args.size()) return NeedsValue(*field, {});
      ++i;
      if (FieldOfFlag(args[i], fields) != nullptr) return NeedsValue(*field, args[i]);
      words.push_back(args[i]);
    }
  }
  return words;
}

absl::Status Unexpected(const std::string& word, std::span<const Field> fields) {
  if (word.size() < 2 || word.front() != '-') {
    return absl::InvalidArgumentError(absl::StrCat("unexpected argument '", word, "'"));
  }
  std::vector<std::string> names;
  for (const Field& field : fields) names.push_back(FlagName(field.name));
  const std::string name = word.substr(0, word.find('='));
  const std::string_view nearest = NearestName(name, names);
  return absl::InvalidArgumentError(
      nearest.empty()
          ? absl::StrCat("unknown flag ", name)
          : absl::StrCat("unknown flag ", name, "; did you mean ", ToAbsl(nearest), "?"));
}

// What CLI11 collected for one field.
absl::Status Assign(const Field& field, const std::vector<std::string>& values) {
  if (field.kind != FieldKind::kList && values.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(FlagName(field.name), ": given ", values.size(), " times; give it once"));
  }
  if (field.kind == FieldKind::kSwitch) return field.parse("true");
  for (const std::string& value : values) HEARTH_RETURN_IF_ERROR(field.parse(value));
  return absl::OkStatus();
}

}  // namespace

std::string FlagName(std::string_view field_name) {
  return absl::StrCat("--", absl::StrReplaceAll(ToAbsl(field_name), {{"_", "-"}}));
}

absl::StatusOr<GivenFields> ParseFlags(std::span<const std::string> args,
                                       std::span<const Field> fields) {
  HEARTH_ASSIGN_OR_RETURN(std::vector<std::string> words, Normalise(args, fields));
  std::reverse(words.begin(), words.end());  // CLI11 takes them from the back
  try {
    CLI::App app;
    app.set_help_flag();
    app.allow_extras();
    std::vector<CLI::Option*> options;
    for (const Field& field : fields) {
      const auto keep = [](const CLI::results_t&) { return true; };  // the values are read below
      CLI::Option* option = app.add_option(FlagName(field.name), keep);
      option->type_size(field.kind == FieldKind::kSwitch ? 0 : 1);
      option->expected(field.kind == FieldKind::kSwitch ? 0 : 1);
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
      options.push_back(option);
    }
    app.parse(words);
    if (!app.remaining().empty()) return Unexpected(app.remaining().front(), fields);
    GivenFields given;
    for (size_t i = 0; i < fields.size(); ++i) {
      if (options[i]->count() == 0) continue;
      given.Add(fields[i].name);
      HEARTH_RETURN_IF_ERROR(InFlagWords(Assign(fields[i], options[i]->results()), fields));
    }
    return given;
  } catch (const CLI::Error& error) {
    return absl::InvalidArgumentError(error.what());
  }
}

absl::Status InFlagWords(const absl::Status& status, std::span<const Field> fields) {
  const std::string_view message = ToStd(status.message());
  const size_t colon = message.find(':');
  if (status.ok() || colon == std::string_view::npos) return status;
  std::vector<std::string> flags;
  for (const absl::string_view name :
       absl::StrSplit(ToAbsl(message.substr(0, colon)), absl::ByString(", "))) {
    if (FindField(fields, ToStd(name)) == nullptr) return status;
    flags.push_back(FlagName(ToStd(name)));
  }
  return absl::Status(status.code(),
                      absl::StrCat(absl::StrJoin(flags, ", "), ToAbsl(message.substr(colon))));
}

}  // namespace hearth::cli
