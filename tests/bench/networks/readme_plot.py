#!/usr/bin/env python3
"""Draws the table of training times in the root README as readme_plot.svg, beside this file.

    readme_plot.py            writes the plot
    readme_plot.py --check    fails if the plot doesn't match the table
"""
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
README = HERE.parents[2] / "README.md"
PLOT = HERE / "readme_plot.svg"

RUNNERS = ("convgrad", "PyTorch eager", "PyTorch compiled")
BAR, GAP, LEFT, WIDTH, PANEL, TOP = 11, 10, 88, 190, 350, 58
# Colours that are readable on white and, with a dark theme, on black.
STYLE = """
text { font: 12px sans-serif; fill: #424a53; }
.title { font-weight: bold; }
.r0 { fill: #1f883d; } .r1 { fill: #8c959f; } .r2 { fill: #bf8700; }
@media (prefers-color-scheme: dark) {
  text { fill: #d1d7e0; }
  .r0 { fill: #3fb950; } .r1 { fill: #6e7681; } .r2 { fill: #d29922; }
}
"""


def table_of(page):
    """Returns [(panel's title, [(network, [milliseconds of each runner])])]."""
    lines = page.splitlines()
    begin = next(i for i, line in enumerate(lines) if re.match(r"\| \| [^|]+\| eager \|", line))
    head = [cell.strip() for cell in lines[begin].split("|")[2:-1]]
    panels = [(head[i], []) for i in range(0, len(head), len(RUNNERS))]
    for line in lines[begin + 2:]:
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if not all(cell.isdigit() for cell in cells[1:]):
            return panels
        for i, (_, networks) in enumerate(panels):
            first = 1 + i * len(RUNNERS)
            networks.append((cells[0], [int(c) for c in cells[first:first + len(RUNNERS)]]))
    raise ValueError("the table has no last row of geometric means")


def text(x, y, words, kind="", anchor="start"):
    return f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{words}</text>'


def drawn(panels):
    """Returns the SVG: a panel for each machine, a group of bars for each network."""
    parts = [text(LEFT, 16, "Milliseconds of a training step, batch 16, two cores; less is better",
                  "title")]
    for i, runner in enumerate(RUNNERS):
        x = LEFT + i * 130
        parts += [f'<rect x="{x}" y="24" width="11" height="11" class="r{i}"/>',
                  text(x + 16, 34, runner)]
    height = TOP
    for i, (title, networks) in enumerate(panels):
        left, y = LEFT + i * PANEL, TOP
        longest = max(max(times) for _, times in networks)
        parts.append(text(left, y, title, "title"))
        y += GAP
        for network, times in networks:
            parts.append(text(left - 6, y + 1.5 * BAR + 4, network, anchor="end"))
            for runner, time in enumerate(times):
                width = round(WIDTH * time / longest, 1)
                parts += [f'<rect x="{left}" y="{y}" width="{width}" height="{BAR - 1}" '
                          f'class="r{runner}"/>', text(left + width + 4, y + BAR - 1, time)]
                y += BAR
            y += GAP
        height = max(height, y)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="720" viewBox="0 0 720 {height}">'
    return "\n".join([head, f"<style>{STYLE}</style>", *parts, "</svg>", ""])


plot = drawn(table_of(README.read_text(encoding="utf-8")))
if sys.argv[1:] != ["--check"]:
    PLOT.write_text(plot, encoding="utf-8")
elif PLOT.read_text(encoding="utf-8") != plot:
    sys.exit("readme_plot.svg isn't that of README.md's table: run readme_plot.py")
