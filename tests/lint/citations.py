#!/usr/bin/env python3
"""Fails if a file cites a page of documentation, or a section of one, that doesn't exist.

    citations.py              checks every text file of the tree
    citations.py --self-test  checks that forged citations are reported

A citation of a page is its path from the repository's root or from the citing file. A citation
of a section adds its heading in quotes: proto/sessions.md, "Exactly once".
"""
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Pages that programs write, and files whose citations aren't checked.
GENERATED = {"report.md"}
LEFT_OUT = {"CHANGELOG.md", "tests/lint/citations.py", "tests/lint/documents.py"}

PAGE = re.compile(r"[\w./-]*\w\.md\b")
# Matches page.md, "Section", also in a link or in backquotes.
SECTION = re.compile(r'([\w./-]*\w\.md)[`)]?,\s+"([^"]{1,60})"')
LINE_START = re.compile(r"\n[ \t]*(?://|#|\*)?[ \t]*")


def page_of(cited, citing, exists):
    """Returns the cited page's path from the root; None if it doesn't exist."""
    beside = os.path.normpath(pathlib.PurePosixPath(citing).parent / cited)
    for path in (cited.lstrip("/"), beside):
        if not path.startswith("..") and exists(path):
            return path
    return None


def findings(citing, text, exists, read):
    """Returns a line for each citation in `text` whose target doesn't exist."""
    flat = LINE_START.sub(" ", text)
    found = [f"{citing}: cites {cited}, which isn't there"
             for cited in sorted(set(PAGE.findall(flat)) - GENERATED)
             if page_of(cited, citing, exists) is None]
    for cited, section in sorted(set(SECTION.findall(flat))):
        page = page_of(cited, citing, exists)
        if page is None:
            continue
        if not re.search(rf"^#+ {re.escape(section)}\b", read(page), re.MULTILINE):
            found.append(f'{citing}: cites {cited}, "{section}", which has no such heading')
    return found


def file_names():
    """Returns the paths of tracked and new files; without git, of all files except build output.
    """
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "--cached", "--others",
                             "--exclude-standard"], stdout=subprocess.PIPE, text=True,
                            stderr=subprocess.DEVNULL, check=False)
    names = listed.stdout.splitlines() or [
        path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*")
        if path.relative_to(ROOT).parts[0] not in ("build", ".cache", ".git")]
    return [name for name in names if (ROOT / name).is_file()]


def check_tree():
    found = []
    for name in file_names():
        if name in LEFT_OUT:
            continue
        try:
            text = (ROOT / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += findings(name, text, lambda path: (ROOT / path).is_file(),
                          lambda path: (ROOT / path).read_text(encoding="utf-8"))
    return found


def self_test():
    pages = {"proto/a.md": "# A\n\n## Shapes: of tensors\n", "README.md": "# R\n"}

    def count(text):
        return len(findings("proto/b.h", text, lambda path: path in pages, pages.get))

    good = ('// See proto/a.md, "Shapes".', '// See proto/a.md,\n// "Shapes".', "README.md",
            "writes report.md", 'no page, "Shapes"')
    bad = ("// networks.md 4", "// proto/c.md", '// proto/a.md, "Layouts".',
           '// [it](proto/a.md), "Layouts"', '// proto/a.md,\n//   "Layouts"')
    wrong = [text for text in good if count(text) != 0]
    wrong += [text for text in bad if count(text) != 1]
    return [f"self-test: {text!r}" for text in wrong]


def main():
    found = self_test() if sys.argv[1:] == ["--self-test"] else check_tree()
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
