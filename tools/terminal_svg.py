#!/usr/bin/env python3
"""Turns coloured terminal text, as `hearth top --once --colour always` prints it, into an SVG:
blocks become rectangles, so that the picture does not depend on the viewer's font.

usage: hearth top --once --colour always | tools/terminal_svg.py > picture.svg
"""

import re
import sys
from xml.sax.saxutils import escape

CELL_WIDTH, CELL_HEIGHT = 8, 17
BASELINE = 13
MARGIN = 10
BACKGROUND, FOREGROUND = "#16181d", "#d7dae0"
# Of a cell, in eighths: what each block fills as (left, top, width, height).
BLOCKS = {char: (0, 7 - i, 8, i + 1) for i, char in enumerate("▁▂▃▄▅▆▇█")}
BLOCKS.update({char: (0, 0, 7 - i, 8) for i, char in enumerate("▉▊▋▌▍▎▏")})
BLOCKS["┃"] = (3, 0, 2, 8)
SHADES = {"▓": 0.9, "▒": 0.75, "░": 0.6}


def colour_of(code):
    """Of the 256 that terminals share."""
    if code >= 232:
        return "#" + f"{8 + 10 * (code - 232):02x}" * 3
    if code >= 16:
        levels = (0, 95, 135, 175, 215, 255)
        code -= 16
        return "#%02x%02x%02x" % (levels[code // 36], levels[code // 6 % 6], levels[code % 6])
    return FOREGROUND


def cells_of(line):
    """(character, colour, is bold) of each cell."""
    colour, bold = FOREGROUND, False
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        if not part.startswith("\x1b"):
            yield from ((char, colour, bold) for char in part)
            continue
        codes = [int(code) for code in part[2:-1].split(";") if code]
        colour, bold = FOREGROUND, False  # every escape of ours says all
        for i, code in enumerate(codes):
            bold |= code == 1
            if code == 38 and codes[i + 1:i + 2] == [5]:
                colour = colour_of(codes[i + 2])
                break


def runs_of(cells):
    """(first column, text, colour, is bold) of neighbours that are drawn alike."""
    begin = 0
    for at in range(1, len(cells) + 1):
        same = (at < len(cells) and cells[at][1:] == cells[begin][1:] and
                kind_of(cells[at][0]) == kind_of(cells[begin][0]))
        if not same:
            yield begin, "".join(cell[0] for cell in cells[begin:at]), *cells[begin][1:]
            begin = at


def kind_of(char):
    """Blocks join only with the same block, words with words."""
    return char if char in BLOCKS or char in SHADES or char == " " else "text"


def rectangle(column, row, count, box, colour, opacity):
    left, top, width, height = box
    x = MARGIN + column * CELL_WIDTH + left * CELL_WIDTH / 8
    y = MARGIN + row * CELL_HEIGHT + top * CELL_HEIGHT / 8
    span = (count - 1) * CELL_WIDTH + width * CELL_WIDTH / 8
    extra = f' opacity="{opacity}"' if opacity < 1 else ""
    return (f'<rect x="{x:g}" y="{y:g}" width="{span:g}" height="{height * CELL_HEIGHT / 8:g}" '
            f'fill="{colour}"{extra}/>')


def words(column, row, text, colour, bold):
    x = MARGIN + column * CELL_WIDTH
    y = MARGIN + row * CELL_HEIGHT + BASELINE
    weight = ' font-weight="bold"' if bold else ""
    fill = "" if colour == FOREGROUND else f' fill="{colour}"'
    return (f'<text x="{x}" y="{y}" textLength="{len(text) * CELL_WIDTH}"{fill}{weight}>'
            f'{escape(text)}</text>')


def draw_line(row, line):
    for column, text, colour, bold in runs_of(list(cells_of(line))):
        char = text[0]
        if char in BLOCKS and BLOCKS[char][2] == 8:
            yield rectangle(column, row, len(text), BLOCKS[char], colour, 1)
        elif char in BLOCKS:
            for i in range(len(text)):
                yield rectangle(column + i, row, 1, BLOCKS[char], colour, 1)
        elif char in SHADES:
            yield rectangle(column, row, len(text), BLOCKS["█"], colour, SHADES[char])
        elif char != " ":
            yield words(column, row, text, colour, bold)


def picture(text):
    lines = text.rstrip("\n").split("\n")
    columns = max(len(list(cells_of(line))) for line in lines)
    width = columns * CELL_WIDTH + 2 * MARGIN
    height = len(lines) * CELL_HEIGHT + 2 * MARGIN
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
             f'viewBox="0 0 {width} {height}" font-family="DejaVu Sans Mono, Menlo, Consolas, '
             f'monospace" font-size="13" xml:space="preserve" fill="{FOREGROUND}">',
             f'<rect width="{width}" height="{height}" rx="6" fill="{BACKGROUND}"/>']
    for row, line in enumerate(lines):
        parts.extend(draw_line(row, line))
    return "\n".join(parts) + "\n</svg>\n"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    sys.stdout.write(picture(sys.stdin.read()))
