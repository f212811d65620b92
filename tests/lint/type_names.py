#!/usr/bin/env python3
"""Fails if two files define a type of the same name in the same namespace: a program that links
both would use the functions of one for the other. Tests are compared with the sources, but not
with each other, because each is a program of its own.

    type_names.py              checks the tree
    type_names.py --self-test  checks that forged violations are reported
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

OPENING = re.compile(r"namespace\s*([\w:]*)\s*\{")
CLOSING = re.compile(r"\}\s*// namespace")
TYPE = re.compile(r"(?:template <[^>]*>\s*)?(?:struct|class|enum class|enum) (?:\w+\([^)]*\) )?"
                  r"([\w:]+)(?: final)?(?: : [^{]*| :[^:{]*)?\s*\{")


def types_in(text):
    """Yields the qualified names of the types that `text` defines outside of unnamed namespaces
    and of other types."""
    names = []
    for line in text.splitlines():
        if opening := OPENING.match(line):
            names.append(opening[1])
        elif CLOSING.match(line) and names:
            names.pop()
        elif (found := TYPE.match(line)) and all(names):
            yield "::".join((*names, found[1]))


def complaints(texts):
    """Yields a line for each type with two definitions. `texts` are by path."""
    paths = {}
    for path, text in texts.items():
        for name in types_in(text):
            paths.setdefault(name, []).append(path)
    for name, where in paths.items():
        if len(where) > 1 and not all(path.startswith("tests/") for path in where):
            yield f"{name}: defined in {', '.join(where)}"


def self_test():
    found = list(complaints({
        "a.h": "namespace n {\nstruct A {\n};\nclass B final : C {\n}  // namespace n\n",
        "b.h": "namespace n {\nenum class A {\nclass C;\nnamespace {\nclass B {\n}  // namespace\n}",
        "tests/a.h": "namespace n {\nclass B {\nclass D {\n  struct E {\n",
        "tests/b.h": "namespace n {\nclass D {\nstruct C {\nnamespace m {\nstruct A {\n"}))
    expected = ["n::A: defined in a.h, b.h", "n::B: defined in a.h, tests/a.h"]
    return [] if found == expected else [f"self-test: {found}"]


def main(arguments):
    if arguments == ["--self-test"]:
        found = self_test()
    else:
        found = list(complaints({
            path.relative_to(ROOT).as_posix(): path.read_text()
            for top in ("backends", "client/cpp", "proto", "server", "tests")
            for path in sorted((ROOT / top).rglob("*")) if path.suffix in (".cc", ".h")}))
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
