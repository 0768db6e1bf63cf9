// Lays the texts of --help out in 100 columns.
#include "tools/hearth/help_text.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/status.h"
#include "tools/hearth/exit_code.h"
#include "tools/hearth/flag_parser.h"

namespace hearth::cli {
namespace {

constexpr size_t kMetavarColumns = 24;  // a longer list of choices goes to the right column

bool IsLongChoice(const Field& field) { return field.metavar.size() > kMetavarColumns; }

std::string FlagColumn(const Field& field) {
  const std::string metavar = IsLongChoice(field) ? "NAME" : field.metavar;
  return absl::StrCat("  ", FlagName(field.name), metavar.empty() ? "" : " ", metavar);
}

// " (128)", " (from 0 to 8; 3)", "": whatever the help line does not say by itself.
std::string Facts(const Field& field) {
  std::string facts = IsLongChoice(field) ? field.metavar : "";
  const size_t bounds = field.accepts.find(" from ");
  if (field.metavar == "N" && bounds != std::string::npos) {
    absl::StrAppend(&facts, field.accepts.substr(bounds + 6));
  }
  const std::string value = field.kind == FieldKind::kSwitch ? "" : field.print();
  if (!value.empty()) absl::StrAppend(&facts, facts.empty() ? "" : "; ", "default ", value);
  return facts.empty() ? "" : absl::StrCat(" (", facts, ")");
}

}  // namespace

std::string CommandListHelp(std::span<const Command> commands, std::string_view group) {
  const std::string prefix = group.empty() ? "" : absl::StrCat(ToAbsl(group), " ");
  std::string text = absl::StrCat("usage: hearth ", prefix, "COMMAND [--flag VALUE]...\n");
  for (const Command& command : commands) {
    if (!absl::StartsWith(command.text.name, prefix)) continue;
    absl::StrAppendFormat(&text, "  %-15s %s\n", command.text.name, command.text.summary);
  }
  absl::StrAppend(&text, "`hearth COMMAND --help` lists the flags of one; `hearth --version`\n",
                  ToAbsl(kExitCodesHelp), "\n");
  return text;
}

std::string CommandHelp(const CommandText& text, std::span<const Field> fields) {
  size_t width = 0;
  for (const Field& field : fields) width = std::max(width, FlagColumn(field).size());
  std::string help = absl::StrCat("hearth ", text.name, ": ", text.summary, "\n");
  for (const Field& field : fields) {
    absl::StrAppendFormat(&help, "%-*s  %s%s\n", static_cast<int>(width), FlagColumn(field),
                          field.help, Facts(field));
  }
  if (!text.notes.empty()) {
    absl::StrAppend(&help, text.notes, absl::EndsWith(text.notes, "\n") ? "" : "\n");
  }
  absl::StrAppend(&help, "and --json (results as one JSON object), --print-config, --help\n",
                  ToAbsl(kExitCodesHelp), "\n");
  return help;
}

}  // namespace hearth::cli
