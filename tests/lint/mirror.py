#!/usr/bin/env python3
"""Fails if a test and its source aren't at mirrored paths: tests/a/b_test.cc and
tests/a/b_IDEA_test.cc test a/b.cc or a/b.h.

    mirror.py              checks that every unit test has its source, and that every large
                           source of a hard room has its test
    mirror.py --table      prints the sources of the hard rooms with their tests
    mirror.py --self-test  checks that forged violations are reported
"""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Tests of whole programs, which have no single source.
WHOLE = tuple(f"tests/{folder}/" for folder in (
    "bench", "cases", "conformance", "deploy", "end_to_end", "fuzz", "gpu"))

# Rooms whose faults tests of whole programs may miss. A source there with at least this many
# lines of code needs its own test. COVERED names sources without a test, and the test that covers
# each.
HARD = ("backends/onednn/execution", "backends/onednn/networks/schedule", "client/cpp/calls",
        "client/cpp/sessions", "proto/codec", "server/rpc/calls", "server/scheduling",
        "server/sessions")
LARGE = 80
COVERED = {
    # Parts of a class whose tests have the name of another part.
    "client/cpp/sessions/change_epochs.cc": "tests/client/cpp/sessions/change_sender_test.cc",
    "client/cpp/sessions/change_reads.cc": "tests/client/cpp/sessions/change_sender_test.cc",
    "server/rpc/calls/call.cc": "tests/server/rpc/calls/message_call_test.cc",
    "server/rpc/calls/call_clients.cc": "tests/server/rpc/calls/message_call_test.cc",
    "server/sessions/change_checks.cc": "tests/server/sessions/change_order_test.cc",
    "server/sessions/session.cc": "tests/server/sessions/session_table_test.cc",
    "server/sessions/session_promise.cc": "tests/server/sessions/session_table_test.cc",
    # One half of a codec, which is tested together with the other half.
    "proto/codec/codec_enums.cc": "tests/proto/codec/codec_test.cc",
    # Their behaviour depends on the server that they call, or on a scheduler.
    "client/cpp/sessions/networks.cc": "tests/end_to_end/client/cpp_networks_test.cc",
    "client/cpp/sessions/session.cc": "tests/end_to_end/client/cpp_session_test.cc",
    "client/cpp/sessions/session_life.cc": "tests/end_to_end/client/cpp_session_test.cc",
    "client/cpp/sessions/session_wire.cc": "tests/end_to_end/client/cpp_session_put_test.cc",
    "server/rpc/calls/unary_call.cc": "tests/end_to_end/answers_test.cc",
}

# Unit tests without a source, with the reason.
SOURCELESS = {
    "tests/proto/wire_compatibility_test.cc": "tests the .proto files",
}


def code_lines(text):
    """Returns the number of lines with code."""
    lines = (line.strip() for line in text.splitlines())
    return sum(1 for line in lines if line and not line.startswith("//"))


def source_of(test, sources):
    """Returns the source at the mirrored path of `test`, without its suffix; the longest name if
    several match, None if there is none. `sources` have no suffixes."""
    name = test.removeprefix("tests/").removesuffix("_test.cc")
    folder, _, stem = name.rpartition("/")
    words = stem.split("_")
    for count in range(len(words), 0, -1):
        source = f"{folder}/{'_'.join(words[:count])}"
        if source in sources:
            return source
    return None


def tests_by_source(files):
    """Returns the unit tests of each source; tests without a source have the key None."""
    sources = {str(pathlib.PurePosixPath(file).with_suffix("")) for file in files
               if not file.startswith("tests/")}
    found = {}
    for file in files:
        if file.startswith("tests/") and file.endswith("_test.cc") and not file.startswith(WHOLE):
            found.setdefault(source_of(file, sources), []).append(file)
    return found


def large_sources(files, lines_of):
    """Returns the sources of hard rooms that need a test."""
    return [file for file in files if file.endswith(".cc")
            and str(pathlib.PurePosixPath(file).parent) in HARD and lines_of(file) >= LARGE]


def complaints(files, lines_of, covered, sourceless):
    """Yields a line for each test without a source, each large source without a test, and each
    unnecessary exception."""
    tests = tests_by_source(files)
    alone = tests.get(None, [])
    untested = [file for file in large_sources(files, lines_of)
                if file.removesuffix(".cc") not in tests]
    for test in alone:
        if test not in sourceless:
            yield f"{test}: no source has this name at the mirrored path"
    for source in untested:
        if source not in covered:
            yield f"{source}: {lines_of(source)} lines of code, but no test " \
                f"tests/{source.removesuffix('.cc')}_test.cc"
    for test in sourceless:
        if test not in alone:
            yield f"{test}: needs no exception"
    for source, test in covered.items():
        if source not in untested:
            yield f"{source}: needs no exception"
        elif test not in files:
            yield f"{source}: {test}, which is to cover it, isn't there"


def self_test():
    lines = {"server/sessions/big.cc": LARGE, "server/sessions/small.cc": LARGE - 1,
             "server/sessions/part.cc": 900, "server/sessions/tried.cc": 900,
             "server/flags/big.cc": 900, "server/sessions/tried_again.cc": 900,
             "server/sessions/tried.h": 900}
    tests = ["tests/server/sessions/tried_test.cc", "tests/server/sessions/tried_again_now_test.cc",
             "tests/server/sessions/gone_test.cc", "tests/server/tried_test.cc",
             "tests/end_to_end/gone_test.cc", "tests/proto/idea_test.cc"]
    found = list(complaints(
        [*lines, *tests], lines.get,
        {"server/sessions/part.cc": tests[0], "server/sessions/small.cc": tests[0]},
        {"tests/proto/idea_test.cc": "of ideas", "tests/proto/old_test.cc": "of habit"}))
    expected = ["tests/server/sessions/gone_test.cc", "tests/server/tried_test.cc",
                "server/sessions/big.cc", "tests/proto/old_test.cc", "server/sessions/small.cc"]
    wrong = [] if [line.split(":")[0] for line in found] == expected else [f"self-test: {found}"]
    # The test belongs to the longer name.
    longer = list(complaints([*lines, tests[0], tests[1]], lines.get, {}, {}))
    shorter = list(complaints([*lines, tests[1]], lines.get, {}, {}))
    if len(shorter) != len(longer) + 1 or not any("/tried.cc" in line for line in shorter):
        wrong.append(f"self-test: {longer}, {shorter}")
    return wrong


def main(arguments):
    files = [path.relative_to(ROOT).as_posix()
             for top in ("backends", "client/cpp", "proto", "server", "tests")
             for path in sorted((ROOT / top).rglob("*"))
             if path.suffix in (".cc", ".h")]

    def lines_of(file):
        return code_lines((ROOT / file).read_text())

    if arguments == ["--self-test"]:
        found = self_test()
    elif arguments == ["--table"]:
        tests = tests_by_source(files)
        found = []
        for file in files:
            if file.endswith(".cc") and str(pathlib.PurePosixPath(file).parent) in HARD:
                own = [test.rpartition("/")[2] for test in tests.get(file.removesuffix(".cc"), [])]
                print(f"{lines_of(file):4} {file:60} {' '.join(own)}")
    else:
        found = list(complaints(files, lines_of, COVERED, SOURCELESS))
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
