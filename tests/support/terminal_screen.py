"""A terminal that keeps what programs draw on it: as much of xterm as ncurses asks for. What it
does not know is an error, so that a test never compares a picture that was read wrongly."""

import re

_CSI = re.compile(r"\x1b\[([?>]?)([0-9;]*)([@-~])")
_IGNORED = re.compile(r"\x1b(?:[=>78]|\([0AB]|\]0;[^\x07]*\x07)|[\x0e\x0f\x07]")


class TerminalScreen:
    """Cells of one character each; styles are not kept."""

    def __init__(self, rows, columns):
        self.rows, self.columns = rows, columns
        self.cells = [[" "] * columns for _ in range(rows)]
        self.row = self.column = 0
        self.alternate = False  # the full-screen buffer, which a program gives back at its end
        self.cursor_shown = True
        self.last = " "
        self.rest = ""

    def resize(self, rows, columns):
        old = self.cells
        self.rows, self.columns = rows, columns
        self.cells = [[old[r][c] if r < len(old) and c < len(old[r]) else " "
                       for c in range(columns)] for r in range(rows)]
        self.row, self.column = min(self.row, rows - 1), min(self.column, columns - 1)

    def text(self):
        return "".join("".join(line).rstrip() + "\n" for line in self.cells)

    def feed(self, text):
        text = self.rest + text
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                match = _CSI.match(text, at) or _IGNORED.match(text, at)
                if match is None:
                    if len(text) - at < 64:  # the rest comes with the next read
                        break
                    raise ValueError(f"unknown: {text[at:at + 20]!r}")
                if match.re is _CSI:
                    self._csi(*match.groups())
                at = match.end()
            else:
                self._character(text[at])
                at += 1
        self.rest = text[at:]

    def _character(self, char):
        if char == "\r":
            self.column = 0
        elif char == "\n":
            if self.row == self.rows - 1:
                self.cells = self.cells[1:] + [[" "] * self.columns]
            self.row = min(self.row + 1, self.rows - 1)
        elif char == "\b":
            self.column = max(self.column - 1, 0)
        elif _IGNORED.match(char) is None:
            if self.column == self.columns:  # a full line goes on below
                self._character("\r")
                self._character("\n")
            self.cells[self.row][self.column] = self.last = char
            self.column += 1

    def _csi(self, private, numbers, final):
        values = [int(n) if n else 0 for n in numbers.split(";")] if numbers else []
        count = max(values[0] if values else 1, 1)
        if private:
            self._mode(private, values, final)
        elif final == "H":
            pair = values + [1] * (2 - len(values))
            self.row, self.column = max(pair[0], 1) - 1, max(pair[1], 1) - 1
        elif final == "G":
            self.column = count - 1
        elif final == "d":
            self.row = count - 1
        elif final in "ABCD":
            self.row += {"A": -count, "B": count}.get(final, 0)
            self.column += {"C": count, "D": -count}.get(final, 0)
        elif final == "K":
            self._erase_line(values[0] if values else 0)
        elif final == "J":
            self._erase_screen(values[0] if values else 0)
        elif final == "X":
            self._fill(self.row, self.column, self.column + count)
        elif final == "b":
            for _ in range(count):
                self._character(self.last)
        elif final == "P":
            line = self.cells[self.row]
            del line[self.column:self.column + count]
            line += [" "] * (self.columns - len(line))
        elif final == "@":
            line = self.cells[self.row]
            self.cells[self.row] = (line[:self.column] + [" "] * count +
                                    line[self.column:])[:self.columns]
        elif final not in "mrlht":  # colours, whole-screen scrolling regions, modes
            raise ValueError(f"unknown: CSI {numbers}{final}")

    def _mode(self, private, values, final):
        if private == "?" and 1049 in values:
            self.alternate = final == "h"
        if private == "?" and 25 in values:
            self.cursor_shown = final == "h"

    def _erase_line(self, how):
        begin = self.column if how == 0 else 0
        end = self.column + 1 if how == 1 else self.columns
        self._fill(self.row, begin, end)

    def _erase_screen(self, how):
        if how == 0:
            self._erase_line(0)
        for row in range(self.row + 1 if how == 0 else 0, self.rows):
            self._fill(row, 0, self.columns)

    def _fill(self, row, begin, end):
        for column in range(begin, min(end, self.columns)):
            self.cells[row][column] = " "
