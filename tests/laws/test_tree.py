"""Laws of the tree: imports point downwards, files stay one idea long, every YAML loads."""

import ast
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.config.presets import preset_values
from harness.config.run import RunConfig, flat
from harness.config.scales import load_scale
from harness.config.validate import check_config
from harness.experiment.experiment import load_experiment
from tests.laws.test_plain_lines import nodes

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("model", "optim", "harness", "reports")
FILES = {
    str(path.relative_to(ROOT)): path.read_text()
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
    if not path.is_relative_to(ROOT / "harness" / "model")
    and not path.is_relative_to(ROOT / "harness" / "optim")
}
MAX_LINES = 350
# Who may import whom. A folder may always import itself and harness/errors.py; model and optim stand in harness by a link, so
# that a user's own model.py or optim/ never meets ours.
MAY_IMPORT = {
    "model": set(),
    "optim": set(),
    "harness": {
        "cli",
        "provenance",
        "run",
    },  # __init__.py, __main__.py, yamlfile.py (of run alone); errors.py imports nothing of the house
    "run": set(),
    "provenance": {"run", "node"},
    "node": set(),
    "data": {"run", "model"},
    "corpora": {"run", "data"},
    "config": {"run", "data", "model", "optim", "harness"},
    "store": {"run", "provenance"},
    "training": {"run", "data", "corpora", "config", "model", "optim"},
    "experiment": {
        "optim",
        "run",
        "provenance",
        "node",
        "data",
        "corpora",
        "config",
        "training",
        "model",
        "harness",
    },
    "track": {"run"},
    "push": {"run", "store"},
    "runner": {"run", "provenance", "node", "corpora", "config", "store", "training", "harness"},
    "bench": {"run", "node", "data", "corpora", "config", "training", "model", "optim"},
    "split": {"run", "harness"},
    "foreign": {"run", "provenance", "node", "config", "store", "experiment", "runner", "split"},
    "cli": {
        *(
            "run",
            "provenance",
            "node",
            "corpora",
            "config",
            "store",
            "experiment",
            "runner",
            "bench",
            "split",
            "foreign",
            "track",
            "push",
        ),
        *("harness", "inputs", "analysis", "stats", "page", "paper", "submission", "verify"),
    },
    "reports": {"stats", "inputs", "analysis"},  # what `from reports import ...` offers
    "stats": set(),
    "inputs": {"run", "stats"},
    "analysis": {"run", "stats", "inputs", "reports"},
    "figures": {"run", "stats", "inputs", "analysis", "reports"},
    "page": {"run", "stats", "inputs", "analysis", "figures", "reports"},
    "paper": {"inputs", "analysis", "figures", "page", "reports"},
    "submission": {"run", "stats", "inputs"},
    "verify": {"run", "stats", "inputs", "page"},
}
BOUNDARY_ONLY = {"pydantic", "pandas", "rich", "typer"}  # a bare GPU image trains without them
CORE = tuple(
    f
    for f in FILES
    if f.startswith(
        (
            "harness/training/",
            "harness/data/",
            "harness/corpora/",
            "harness/run/",
            "harness/store/",
            "harness/config/",
        )
    )
) + (
    "harness/errors.py",
    "harness/yamlfile.py",
    "harness/bench/parity.py",
    "harness/bench/gpu_check.py",
)


def imported(source: str, *, package: str = "", module_level: bool = False) -> Iterator[str]:
    """Dotted names of the modules a file imports: all of them, or those imported when it is. package: of relative imports."""
    tree = nodes(source)
    lazy = (
        {id(n) for f in tree if isinstance(f, ast.FunctionDef | ast.Lambda) for n in ast.walk(f)}
        if module_level
        else set()
    )
    for node in tree:
        if id(node) in lazy:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0 or (node.level == 1 and package in ("model", "optim")), (
                "a relative import"
            )
            module = (
                f"harness.{package}{'.' * bool(node.module)}{node.module or ''}"
                if node.level
                else node.module or ""
            )
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def top(name: str) -> str:
    return name.partition(".")[0]


def folder_of(file: str) -> str:
    """model, optim, or the folder of harness or reports that a file stands in; harness and reports of their own files."""
    parts = file.split("/")
    return parts[0] if parts[0] in ("model", "optim") or len(parts) == 2 else parts[1]


def folder_of_module(name: str) -> str | None:
    """The same of an imported module; None for one that is not ours."""
    parts = name.split(".")
    if parts[0] not in ("harness", "reports"):
        return None
    inside = ROOT / parts[0] / parts[1] if len(parts) > 1 else ROOT
    return parts[1] if len(parts) > 1 and inside.is_dir() else parts[0]


def arrows(file: str) -> set[str]:
    """Folders of ours that a file imports, but for its own."""
    found = set()
    for name in imported(FILES[file], package=file.split("/")[0]):
        own = folder_of_module(name)
        if (
            own is not None
            and own != folder_of(file)
            and not (name + ".").startswith("harness.errors.")
        ):
            found.add(own)
    return found - (
        {"harness"}
        if any(n == "harness" for n in imported(FILES[file], package=file.split("/")[0]))
        else set()
    )


def test_folders_import_those_that_the_table_allows_and_every_arrow_of_the_table_is_there() -> None:
    seen: dict[str, set[str]] = {folder: set() for folder in MAY_IMPORT}
    for file in FILES:
        seen[folder_of(file)] |= arrows(file)
    assert seen == MAY_IMPORT


def test_the_table_has_no_circle() -> None:
    """Without the files that stand in harness and reports themselves: those are told apart below."""
    left = {
        a: b - {"harness", "reports"}
        for a, b in MAY_IMPORT.items()
        if a not in ("harness", "reports")
    }
    while ground := [a for a, b in left.items() if not b & set(left)]:
        for a in ground:
            del left[a]
    assert left == {}


def test_files_import_each_other_in_no_circle() -> None:
    names = {f"harness.{f}" if folder_of(f) in ("model", "optim") else f: f for f in FILES}
    modules = {
        n.removesuffix(".py").removesuffix("/__init__").replace("/", "."): f
        for n, f in names.items()
    }
    modules = {
        m if m.startswith(("harness", "reports")) else f"harness.{m}": f for m, f in modules.items()
    }
    left = {
        f: {modules[m] for m in imported(t, package=f.split("/")[0]) if m in modules} - {f}
        for f, t in FILES.items()
    }
    while ground := [f for f, others in left.items() if not others & set(left)]:
        for f in ground:
            del left[f]
    assert left == {}


@pytest.mark.parametrize("package", ["model", "optim"])
def test_the_mathematics_imports_torch_alone(package: str) -> None:
    allowed = {"torch", "harness", *sys.stdlib_module_names}
    found = [
        (f, m)
        for f, text in FILES.items()
        if f.startswith(f"{package}/")
        for m in imported(text, package=package)
    ]
    assert [
        (f, m)
        for f, m in found
        if top(m) not in allowed or (top(m) == "harness" and not m.startswith(f"harness.{package}"))
    ] == []


def test_the_statistics_import_numpy_and_scipy_alone() -> None:
    allowed = {"numpy", "scipy", "reports", *sys.stdlib_module_names}
    found = [
        (f, m)
        for f, text in FILES.items()
        if f.startswith("reports/stats/")
        for m in imported(text)
    ]
    assert found
    assert [(f, m) for f, m in found if top(m) not in allowed] == []


def test_reports_never_import_torch() -> None:
    assert [
        (f, m)
        for f, text in FILES.items()
        if f.startswith("reports/")
        for m in imported(text)
        if top(m) == "torch"
    ] == []


def test_only_links_join_the_folders_of_the_mathematics_and_the_data_to_the_package() -> None:
    """harness/model is model/, and so on: one set of files, imported by one name."""
    links = {p.name: os.readlink(p) for p in (ROOT / "harness").iterdir() if p.is_symlink()}
    assert links == {
        "model": "../model",
        "optim": "../optim",
        "experiments": "../experiments",
        "published": "../results/published",
    }


def test_the_training_core_needs_no_library_of_the_boundary() -> None:
    assert CORE
    for file in CORE:
        needed = imported(FILES[file], module_level=True)
        assert [m for m in needed if top(m) in BOUNDARY_ONLY] == [], file


def string_comparisons(source: str) -> list[int]:
    """Lines of comparisons with a string in methods named forward."""
    return [
        node.lineno
        for function in nodes(source)
        if isinstance(function, ast.FunctionDef) and function.name == "forward"
        for node in ast.walk(function)
        if isinstance(node, ast.Compare | ast.Match)
        for leaf in ast.walk(node)
        if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str)
    ]


def test_no_forward_compares_strings() -> None:
    assert string_comparisons(
        "def forward(self, x):\n    return x if self.kind == 'a' else -x"
    ) == [2]
    assert [
        f"{f}:{n}"
        for f, text in FILES.items()
        if f.startswith("model/")
        for n in string_comparisons(text)
    ] == []


def test_no_file_is_longer_than_an_idea() -> None:
    assert {f: n for f, text in FILES.items() if (n := text.count("\n")) > MAX_LINES} == {}


@pytest.mark.parametrize(
    "path", sorted((ROOT / "experiments").rglob("*.yaml")), ids=lambda p: str(p.relative_to(ROOT))
)
def test_every_yaml_of_experiments_loads(path: Path) -> None:
    kind = path.parent.name
    if kind == "records":
        values, _ = preset_values(path.stem)
        assert values.keys() == flat(RunConfig()).keys()
    elif kind == "scales":
        assert load_scale(path.stem, "r02").name == path.stem
    else:
        assert re.match(r"(#.*\n)*(name: .*\n)?question: .+\?", path.read_text()), (
            "an experiment opens with its question"
        )
        load_experiment(str(path), device="cpu")


def test_the_default_configuration_is_valid() -> None:
    check_config(RunConfig())
