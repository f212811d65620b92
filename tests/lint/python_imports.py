#!/usr/bin/env python3
"""Checks the Python client's imports and folders: there is no import cycle, and no folder has
more than 30 modules.

Imports under TYPE_CHECKING and inside functions count too. `from package import name` imports
the module `name` or, if that is no module, the package.

    python_imports.py PACKAGE    the package's folder
    python_imports.py --self-test
"""

import ast
import sys
import tempfile
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path


def imports_of(source, modules):
    """Returns the names among `modules` that a source imports."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found.add(name if name in modules else node.module)
    return found & modules


def circle_in(package):
    """Returns the modules of an import cycle, with the first one repeated; nothing if there is
    none."""
    files = {".".join(path.relative_to(package.parent).with_suffix("").parts): path
             for path in package.rglob("*.py")}
    files = {name.removesuffix(".__init__"): path for name, path in files.items()}
    graph = {name: imports_of(path.read_text(), files.keys()) for name, path in files.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1][::-1]
    return []


def full_folders(package, most=30):
    """Returns the folders with more than `most` modules."""
    counts = Counter(path.parent.relative_to(package.parent) for path in package.rglob("*.py"))
    return [f"{folder} has {count}" for folder, count in counts.items() if count > most]


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        sources = {"p/__init__.py": "from p.a import x", "p/a.py": "import p.b",
                   "p/b.py": "if TYPE_CHECKING:\n    from p import c", "p/c.py": ""}
        for path, source in sources.items():
            (Path(folder) / path).parent.mkdir(exist_ok=True)
            (Path(folder) / path).write_text(source)
        package = Path(folder) / "p"
        assert circle_in(package) == [] == full_folders(package)
        assert full_folders(package, 3) == ["p has 4"]
        (Path(folder) / "p/c.py").write_text("def f():\n    from p.a import x")
        assert set(circle_in(package)) == {"p.a", "p.b", "p.c"}


if sys.argv[1:] == ["--self-test"]:
    self_test()
elif circle := circle_in(Path(sys.argv[1])):
    sys.exit("a circle of imports: " + " -> ".join(circle))
elif full := full_folders(Path(sys.argv[1])):
    sys.exit(f"more than 30 modules: {', '.join(full)}")
