"""The code in client/python/sessions.md, run as it is written, against a server."""

import pathlib
import re

import pytest

import convgrad

PAGE = pathlib.Path(__file__).parents[4] / "client/python/sessions.md"
ADDRESS = "localhost:7070"


def blocks():
    """Yields (line, code) of each block of Python; all the page's fences are such."""
    text = PAGE.read_text()
    found = list(re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    assert text.count("```") == 2 * len(found)
    for one in found:
        yield text.count("\n", 0, one.start()) + 1, one[1]


@pytest.fixture
def ran(server):
    """Runs each block behind the others, in one namespace as a reader would."""
    names = {}
    for line, code in blocks():
        code = "\n" * line + code.replace(ADDRESS, server.address)
        exec(compile(code, str(PAGE), "exec"), names)
    return names


def test_each_block_runs_and_nothing_is_left(ran, client, capsys):
    assert ran["classes"].shape == (4, 16, 16)
    assert ran["weights"].keys() == ran["make_model"]().state_dict().keys()
    assert ADDRESS in PAGE.read_text()
    with pytest.raises(convgrad.SessionExpired):
        client.attach(ran["session_id"])


def test_names_that_the_page_tells_exist():
    for name in re.findall(r"`client\.(\w+)\(", PAGE.read_text()):
        assert hasattr(convgrad.Client, name), name
    for name in re.findall(r"`(\w+)`", PAGE.read_text()):
        known = (convgrad, convgrad.Attached, convgrad.Client, convgrad.Session)
        assert name in WORDS or any(hasattr(one, name) for one in known), name


WORDS = {"with", "lease", "train", "state_dict", "prepare"}
