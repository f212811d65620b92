#!/usr/bin/env python3
"""Fails if a Markdown page breaks the rules for documents or names things that don't exist in
the tree, or if a header's first sentence has no verb.

    documents.py              checks every page and header
    documents.py --self-test  checks that forged faults are reported
    documents.py --words      prints each page's words outside tables and code
    documents.py --headers    prints the headers whose first sentence has no verb

Refuses lines over 100 characters and too many words, not counting tables and code; links and
paths to nothing; flags and metrics that the code doesn't have; flags and metrics of the code
that no table lists; code that differs from its file (<!-- code: FILE --> above a block); alerts
whose row differs from rules.yml. The nodes of a picture count as paths.
"""
import fnmatch
import os
import pathlib
import re
import sys

import citations

ROOT = citations.ROOT

LONGEST_LINE = 100
MOST_WORDS = 1200
MOST_WORDS_OF = {"README.md": 1000, "CHANGELOG.md": None}
# History, which names things that no longer exist.
HISTORY = {"CHANGELOG.md"}
# Folders that readers make.
MADE = {"build", ".cache", "mine", "pki"}
# Flags of other programs that no file of the tree passes to them.
FOREIGN = {"--decode", "--health-cmd", "--go_opt", "--go_out", "--go-grpc_opt", "--go-grpc_out"}
EXTENSIONS = (".cc", ".h", ".py", ".md", ".proto", ".txt", ".cu", ".cmake", ".sh", ".yml",
              ".yaml", ".json", ".cfg", ".binpb")

FENCE = re.compile(r"^ *```")
TICKS = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z_-]*")
FLAG_OF_OURS = re.compile(r"(?<![\w-])--[a-z]+_[a-z_]*")
METRIC = re.compile(r"\bconvgrad_[a-z_]+")
# The begin of a clause without a verb, e.g. "What a plan costs."
CLAUSE = re.compile(r"(What|Which|Whether|Where|How)\b")


def code_lines_of(text):
    """Returns the numbers of the lines in blocks of code, indented or fenced."""
    code, fenced = set(), False
    for number, line in enumerate(text.splitlines(), 1):
        if fenced or FENCE.match(line) or line.startswith("    "):
            code.add(number)
        if FENCE.match(line):
            fenced = not fenced
    return code


def prose_of(text):
    """Yields (number, line) of lines that are neither code, table nor comment."""
    code = code_lines_of(text)
    for number, line in enumerate(text.splitlines(), 1):
        if number not in code and not line.startswith(("|", "<!--")):
            yield number, line


def anchors_of(text):
    """Returns the anchors of the page's headings: the part of a link after the #."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


class Tree:
    """The tree's files with their text, with which pages are compared."""

    def __init__(self, files):
        self.pages = {path: text for path, text in files.items() if path.endswith(".md")}
        self.code = {path: text for path, text in files.items() if path not in self.pages}
        self.places = {place for path in files for place in (
            path, path.rpartition(".")[0], *map(str, pathlib.PurePosixPath(path).parents))}
        self.tops = {path.partition("/")[0] for path in files if "/" in path}
        text = "\n".join(self.code.values())
        self.flags, self.metrics = set(FLAG.findall(text)), set(METRIC.findall(text))
        self.own_flags = self.in_code("server/flags/flag_table.cc", r'\{"(\w+)",\s*&Config', "--")
        for names in self.in_code("client/cpp/command_line/settings/commands_app.cc",
                                  r'(?:Add\(\s*\{|AddSwitch\()"(--[\w,!-]+)"'):
            self.own_flags |= set(names.replace("!", "").split(","))
        self.own_flags |= {re.sub("([A-Z])", r"_\1", name).lower().replace("--_", "--")
                           for name in self.in_code(
                               "client/cpp/command_line/settings/commands_app.cc",
                               r"\{Operand::k(\w+),", "--")}
        self.flags |= self.own_flags
        self.own_metrics = self.in_code("server/telemetry/", r'"(convgrad_[a-z_]+)"')

    def in_code(self, begin, pattern, prefix=""):
        return {prefix + found for path, text in self.code.items() if path.startswith(begin)
                for found in re.findall(pattern, text)}

    def has(self, path):
        """Returns whether a path exists, perhaps without its begin or extension."""
        path = path.rstrip("/")
        return any(place == path or place.endswith("/" + path) for place in self.places) or (
            "*" in path and any(fnmatch.fnmatch(place, "*" + path) for place in self.places))

    def findings_of(self, page, text):
        """Yields (line or 0, fault) for each fault of a page."""
        words = 0
        for number, line in prose_of(text):
            words += len(line.split())
            if len(line) > LONGEST_LINE and " " in line.strip():
                yield number, f"{len(line)} characters, {LONGEST_LINE} at most"
        most = MOST_WORDS_OF.get(page, MOST_WORDS)
        if most is not None and words > most:
            yield 0, f"{words} words outside tables and code, {most} at most"
        if page in HISTORY:
            return
        code = code_lines_of(text)
        for number, line in enumerate(text.splitlines(), 1):
            yield from ((number, fault)
                        for fault in self.faults_in(page, line, number not in code))
        for picture in re.findall(r"^```mermaid\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            for node in re.findall(r'(?<!subgraph )\b\w+\["([^":]+)', picture):
                if not self.has(node):
                    yield 0, f"no such place in the picture: {node}"
        for name, block in re.findall(r"<!-- code: (\S+) -->\n```\w*\n(.*?)^```$", text,
                                      re.DOTALL | re.MULTILINE):
            path = os.path.normpath(os.path.join(os.path.dirname(page), name))
            if self.code.get(path) != block:
                yield 0, f"the code of {path} is another one there"

    def faults_in(self, page, line, is_prose):
        for target in LINK.findall(line):
            if not target.startswith(("http:", "https:")) and not self.leads(page, target):
                yield f"no such place: {target}"
        for span in TICKS.findall(line):
            is_path = re.fullmatch(r"(?:\.\./)*[\w.*-]+(?:/[\w.*-]+)+/?", span)
            top = span.partition("/")[0]
            if is_path and top not in MADE and (
                    top in self.tops or span.endswith(EXTENSIONS)):
                if not self.has(re.sub(r"^(\.\./)+", "", span)) and "NAME" not in span:
                    yield f"no such path: {span}"
        # Commands also have flags of other programs; only ours contain an underscore.
        ours = FLAG if is_prose else FLAG_OF_OURS
        for flag in sorted(set(ours.findall(line)) - self.flags - FOREIGN):
            yield f"no such flag: {flag}"
        for metric in sorted(set(METRIC.findall(line)) - self.metrics):
            yield f"no such metric: {metric}"

    def leads(self, page, target):
        name, _, anchor = target.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(page), name)) if name else page
        return path in self.places and (
            not anchor or anchor in anchors_of(self.pages.get(path, "")))

    def untold(self):
        """Yields the flags and metrics of the code that no table of a page lists."""
        rows = "\n".join(line for page, text in self.pages.items() if page not in HISTORY
                         for line in text.splitlines() if line.startswith("|"))
        told = set(FLAG.findall(rows)) | {
            "--" + name for name in re.findall(r"^\| (\w+) \|", rows, re.MULTILINE)}
        for flag in sorted(self.own_flags - told):
            yield f"{flag} is in no table of a page"
        for metric in sorted(self.own_metrics - set(METRIC.findall(rows))):
            yield f"{metric} is in no table of a page"

    def alerts_untold(self):
        """Yields the alerts in rules.yml without an equal row in the page beside it."""
        for path, text in self.code.items():
            page = self.pages.get(path.replace("rules.yml", "README.md"), "")
            for alert in text.split("- alert: ")[1:] if path.endswith("/rules.yml") else ():
                condition = re.search(r"expr: (.*)", alert)[1].replace("|", "\\|")
                waits = re.search(r"^ +for: (\w+)", alert, re.MULTILINE)
                row = f"| {alert.split()[0]} | `{condition}` | {waits[1] if waits else 'at once'} |"
                if row not in page:
                    yield f"{path}: the page beside it lacks: {row}"

    def clauses(self):
        """Yields the headers whose opening comment begins with a clause without a verb."""
        for path, text in sorted(self.code.items()):
            if path.endswith(".h") and CLAUSE.match(text.removeprefix("//").lstrip()):
                yield f"{path}: the first sentence has no verb: {text.splitlines()[0]}"

    def findings(self):
        for page, text in sorted(self.pages.items()):
            for number, fault in self.findings_of(page, text):
                yield f"{page}:{number}: {fault}" if number else f"{page}: {fault}"
        yield from self.alerts_untold()
        yield from self.untold()
        yield from self.clauses()


def read_tree():
    files = {name: (ROOT / name).read_text(encoding="utf-8", errors="ignore")
             for name in citations.file_names()}
    # Excludes this file, because it contains forged faults.
    files["tests/lint/documents.py"] = ""
    return Tree(files)


def self_test():
    files = {
        "server/flags/flag_table.cc": '{"listen", &Config::listen, "--insecure"}',
        "client/cpp/command_line/settings/commands_app.cc":
            'Add({"--out", "FILE"}); AddSwitch("--check,!--nocheck", '
            "{Operand::kInput, x}, {Operand::kGradOutput, x}",
        "server/telemetry/a.cc": '"convgrad_calls_total"',
        "a/good.h": "// `A` returns. What it is.\n", "a/bad.h": "// What a thing is.\n",
        "a/b.md": "# A b: c\n| listen | x |\n| --out | --check | --nocheck |\n"
                  "| --input | --grad_output | convgrad_calls_total |\n",
    }
    wrong = []

    def expect(count, found, what):
        found = list(found)
        if len(found) != count:
            wrong.append(f"self-test: {what!r}: {found}")

    tree = Tree(files)
    for text in ("x " * 49 + "xx", "|" + "x " * 70 + "|", "```\n" + "x " * 70 + "\n```", "y" * 120,
                 "    " + "x " * 70, "[x](b.md#a-b-c) [x](../server/flags) [x](https://z/y)",
                 "`a/good` `flags/flag_table.cc` `flag*/*.cc` `build/x/y` `C/groups` `a/NAME.h`",
                 "`--insecure` a--b --listen=1 docker --health-cmd", "--input and --grad_output",
                 "```\nsomething --else\n```", "`convgrad_calls_total`",
                 "w\n" * 1200, '```mermaid\nsubgraph x["y z"]\nx["a: x"] --> y["flags"]\n```',
                 "<!-- code: good.h -->\n```cpp\n"
                 "// `A` returns. What it is.\n```\n"):
        expect(0, tree.findings_of("a/c.md", text), text)
    for text in ("x " * 51, "[x](c.md)", "[x](b.md#d)", "`a/lost.h`", "`lost.cc/x.cc`",
                 "`server/flags/x*.cc`", "--lost", "`--list`", "```\nx --max_lost\n```",
                 "convgrad_lost_total", "w\n" * 1201, '```mermaid\nx["a: x"] --> y["lost"]\n```',
                 "<!-- code: good.h -->\n```cpp\n// `B`\n```\n"):
        expect(1, tree.findings_of("a/c.md", text), text)
    expect(1, tree.findings_of("README.md", "w\n" * 1001), "1001 words of the README")
    expect(0, tree.findings_of("CHANGELOG.md", "`a/lost.h` --lost\n" * 700), "history")
    expect(0, tree.untold(), "told")
    expect(7, Tree(files | {"a/b.md": "--listen --out convgrad_calls_total"}).untold(), "untold")
    expect(1, tree.clauses(), "clauses")
    rules = {"p/rules.yml": "- alert: A\n  expr: a > 1\n  for: 5m\n- alert: B\n  expr: b > 0\n"}
    rows = {"p/README.md": "| A | `a > 1` | 5m | x |\n| B | `b > 0` | at once | x |\n"}
    expect(0, Tree(rules | rows).alerts_untold(), "alerts")
    expect(2, Tree(rules | {"p/README.md": rows["p/README.md"].replace("5m", "6m").replace(
        "b > 0", "b > 1")}).alerts_untold(), "other alerts")
    return wrong


def main(arguments):
    if arguments == ["--self-test"]:
        found = self_test()
    elif arguments == ["--words"]:
        print(*(f"{sum(len(line.split()) for _, line in prose_of(text)):6} {page}"
                for page, text in sorted(read_tree().pages.items())), sep="\n")
        return 0
    elif arguments == ["--headers"]:
        found = list(read_tree().clauses())
    else:
        found = list(read_tree().findings())
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
