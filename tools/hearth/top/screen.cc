// Everything that ncurses does for us; its macros stay in this file.
#include "tools/hearth/top/screen.h"

#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>

#define NCURSES_NOMACROS 1
#include <curses.h>
#include <term.h>
// Macros of <term.h> that are words of ours.
#undef columns
#undef lines

#include "absl/strings/str_cat.h"

namespace hearth::cli {
namespace {

constexpr int kEscape = 27;
constexpr int64_t kNsPerMs = 1'000'000;

// What a terminal of eight colours has in place of one of the 256.
short BasicColour(Style style) {
  switch (style.ink) {
    case Ink::kVram:
    case Ink::kGood:
      return COLOR_GREEN;
    case Ink::kPcie:
      return COLOR_CYAN;
    case Ink::kCpu:
      return COLOR_YELLOW;
    case Ink::kSsd:
    case Ink::kBad:
      return COLOR_RED;
    default:
      return -1;
  }
}

// Whether the terminal can be painted on; leaves it alone.
absl::Status CheckTerminal() {
  if (::isatty(STDIN_FILENO) == 0 || ::isatty(STDOUT_FILENO) == 0) {
    return absl::FailedPreconditionError("standard input and output are not a terminal");
  }
  int found = 0;
  if (::setupterm(nullptr, STDOUT_FILENO, &found) != OK) {
    return absl::FailedPreconditionError("this terminal (TERM) is not known");
  }
  char name[] = "cup";
  const char* move = ::tigetstr(name);
  const bool can_move = move != nullptr && move != reinterpret_cast<char*>(-1);
  ::del_curterm(cur_term);
  if (can_move) return absl::OkStatus();
  return absl::FailedPreconditionError("this terminal (TERM) cannot place its cursor");
}

class CursesScreen final : public Screen {
 public:
  CursesScreen(SCREEN* screen, bool is_utf8) : screen_(screen) {
    ::cbreak();
    ::noecho();
    ::nonl();
    ::keypad(stdscr, TRUE);
    ::set_escdelay(25);
    ::curs_set(0);
    ::leaveok(stdscr, TRUE);
    if (::has_colors()) {
      ::start_color();
      has_own_colours_ = ::use_default_colors() == OK;
    }
    looks_ = {.ascii = !is_utf8, .colours256 = ::has_colors() && COLORS >= 256};
  }
  ~CursesScreen() override {
    ::erase();
    ::refresh();
    ::endwin();
    ::delscreen(screen_);
  }

  TerminalSize size() const override {
    return {.rows = static_cast<uint32_t>(std::max(LINES, 1)),
            .columns = static_cast<uint32_t>(std::max(COLS, 1))};
  }
  Looks looks() const override { return looks_; }

  void Paint(const CellGrid& grid) override {
    ::erase();
    const uint32_t rows = std::min(grid.rows(), size().rows);
    const uint32_t columns = std::min(grid.columns(), size().columns);
    for (uint32_t r = 0; r < rows; ++r) {
      for (uint32_t c = 0; c < columns; ++c) PaintCell(r, c, grid.at(r, c));
    }
    ::refresh();  // sends the differences
  }

  Key WaitKey(int64_t wait_ns) override {
    ::wtimeout(stdscr, static_cast<int>(std::max<int64_t>(wait_ns / kNsPerMs, 1)));
    const int key = ::wgetch(stdscr);
    if (key == ERR) return Key::kNone;
    if (key == KEY_RESIZE) return Key::kResize;
    if (key == 'q' || key == 'Q' || key == kEscape) return Key::kQuit;
    return Key::kOther;
  }

 private:
  void PaintCell(uint32_t row, uint32_t column, const Cell& cell) {
    if (cell.glyph == U' ') return;
    const wchar_t text[] = {static_cast<wchar_t>(cell.glyph), L'\0'};
    const bool is_bold = cell.style.ink == Ink::kStrong || cell.style.ink == Ink::kTitle;
    cchar_t complex;
    std::memset(&complex, 0, sizeof(complex));
    if (::setcchar(&complex, text, is_bold ? A_BOLD : A_NORMAL, PairOf(cell.style), nullptr) ==
        OK) {
      ::mvwadd_wch(stdscr, static_cast<int>(row), static_cast<int>(column), &complex);
    }
  }

  // A pair is made when its colour is first asked for.
  short PairOf(Style style) {
    if (!::has_colors()) return 0;
    const int colour = looks_.colours256 ? ColourOf(style) : BasicColour(style);
    if (colour < 0) return 0;
    const auto found = pairs_.find(colour);
    if (found != pairs_.end()) return found->second;
    const auto pair = static_cast<short>(pairs_.size() + 1);
    if (pair >= COLOR_PAIRS) return 0;
    ::init_pair(pair, static_cast<short>(colour), has_own_colours_ ? -1 : COLOR_BLACK);
    pairs_[colour] = pair;
    return pair;
  }

  SCREEN* screen_;
  Looks looks_;
  bool has_own_colours_ = false;
  std::map<int, short> pairs_;
};

}  // namespace

std::optional<TerminalSize> OutputTerminalSize() {
  winsize size = {};
  if (::isatty(STDOUT_FILENO) == 0) return std::nullopt;
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) {
    return TerminalSize();
  }
  return TerminalSize{.rows = size.ws_row, .columns = size.ws_col};
}

bool LocaleIsUtf8() {
  std::setlocale(LC_CTYPE, "");
  return std::string_view(::nl_langinfo(CODESET)) == "UTF-8";
}

absl::StatusOr<std::unique_ptr<Screen>> Screen::Open() {
  if (absl::Status status = CheckTerminal(); !status.ok()) return status;
  const bool is_utf8 = LocaleIsUtf8();
  SCREEN* screen = ::newterm(nullptr, stdout, stdin);
  if (screen == nullptr) {
    return absl::FailedPreconditionError("this terminal (TERM) cannot be used");
  }
  ::set_term(screen);
  return std::make_unique<CursesScreen>(screen, is_utf8);
}

}  // namespace hearth::cli
