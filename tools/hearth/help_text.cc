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

// A screen has 28 lines: so many are left for fields.
constexpr size_t kFieldLinesMax = 22;
constexpr size_t kColumns = 100;

// "--help cache: --slots, --vram-budget ...", as many as a line holds.
std::string GroupLine(std::span<const Field> fields, const std::string& group) {
  std::string line = absl::StrCat("  --help ", group, ":");
  for (const Field& field : fields) {
    if (field.group != group) continue;
    const std::string name =
        absl::StrCat(absl::EndsWith(line, ":") ? " " : ", ", FlagName(field.name));
    if (line.size() + name.size() + 5 > kColumns) return absl::StrCat(line, ", ...\n");
    line += name;
  }
  return line + "\n";
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

std::vector<std::string> HelpGroups(std::span<const Field> fields) {
  std::vector<std::string> groups;
  if (fields.size() <= kFieldLinesMax) return groups;
  for (const Field& field : fields) {
    if (field.group.empty() || (!groups.empty() && groups.back() == field.group)) continue;
    groups.push_back(field.group);
  }
  return groups;
}

std::string CommandHelp(const CommandText& text, std::span<const Field> fields,
                        std::string_view group) {
  const std::vector<std::string> groups = HelpGroups(fields);
  const auto shown = [&](const Field& field) { return groups.empty() || field.group == group; };
  size_t width = 0;
  for (const Field& field : fields) {
    if (shown(field)) width = std::max(width, FlagColumn(field).size());
  }
  std::string help = absl::StrCat(text.Title(), ": ", text.summary, "\n");
  for (const Field& field : fields) {
    if (!shown(field)) continue;
    absl::StrAppendFormat(&help, "%-*s  %s%s\n", static_cast<int>(width), FlagColumn(field),
                          field.help, Facts(field));
  }
  if (group.empty()) {
    for (const std::string& other : groups) absl::StrAppend(&help, GroupLine(fields, other));
    if (!text.notes.empty()) {
      absl::StrAppend(&help, text.notes, absl::EndsWith(text.notes, "\n") ? "" : "\n");
    }
  }
  absl::StrAppend(&help,
                  "and --json (results as one JSON object), --config FILE (TOML), "
                  "--print-config, --help\n",
                  ToAbsl(kExitCodesHelp), "\n");
  return help;
}

}  // namespace hearth::cli
