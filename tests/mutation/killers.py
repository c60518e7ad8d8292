"""Which tests can notice a sabotage: those that enter its function, as coverage by test saw them do."""

import ast
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from coverage import CoverageData

MODULE = "<module>"  # lines outside every function: they run at import, which is no test's
RUN_CONFIG = """[run]
source = .
omit = tests/*, benchmarks/*
data_file = {data}
parallel = true
patch = fork, _exit
sigterm = true
context = ${{PYTEST_CURRENT_TEST-}}
disable_warnings = no-data-collected, module-not-measured, module-not-imported, no-ctracer
"""
MEASURED = "not slow and not gpu and not browser and not slurm"


def function_of(source: str) -> Callable[[int], str]:
    """line -> the innermost function around it, by its dotted name."""
    spans: list[tuple[int, int, str]] = []

    def walk(node: ast.AST, names: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            inner = names
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = (*names, child.name)
                if not isinstance(child, ast.ClassDef):
                    assert child.end_lineno is not None
                    spans.append((child.body[0].lineno, child.end_lineno, ".".join(inner)))
            walk(child, inner)

    walk(ast.parse(source), ())

    def at(line: int) -> str:
        around = [span for span in spans if span[0] <= line <= span[1]]
        return max(around)[2] if around else MODULE

    return at


@dataclass
class Measured:
    """Kept between runs: a test file is measured again when it has changed, code is known by its functions' names."""

    digests: dict[str, str] = field(default_factory=dict)  # of test files
    seconds: dict[str, float] = field(default_factory=dict)  # of every test that passed
    entered: dict[str, dict[str, list[str]]] = field(
        default_factory=dict
    )  # file -> function -> tests

    @classmethod
    def load(cls, file: Path) -> "Measured":
        return cls(**json.loads(file.read_text()))

    def save(self, file: Path) -> None:
        file.write_text(json.dumps(vars(self)))

    def forget(self, test_files: Iterable[str]) -> None:
        gone = set(test_files)
        self.digests = {f: d for f, d in self.digests.items() if f not in gone}
        self.seconds = {t: s for t, s in self.seconds.items() if file_of(t) not in gone}
        for functions in self.entered.values():
            for name, tests in functions.items():
                functions[name] = [t for t in tests if file_of(t) not in gone]

    def add(self, root: Path, folder: Path, told: Path) -> None:
        """What a run of tests entered, by coverage's files in a folder, and which of them passed."""
        self.seconds |= json.loads(told.read_text())
        found: dict[tuple[str, str], set[str]] = defaultdict(set)
        for part in folder.glob("seen*"):
            seen = CoverageData(str(part))
            seen.read()
            for file in seen.measured_files():
                path = Path(file)
                if not path.is_relative_to(root) or not path.exists():
                    continue
                at = function_of(path.read_text(encoding="utf-8"))
                name = str(path.relative_to(root))
                for line, contexts in seen.contexts_by_lineno(file).items():
                    found[name, at(line)].update(filter(None, map(test_of, contexts)))
        for (file, function), tests in found.items():
            functions = self.entered.setdefault(file, {})
            functions[function] = sorted({*functions.get(function, ()), *tests})

    def killers(self, path: str, function: str, budget_s: float) -> list[str]:
        """The tests to run, files that mirror the code's folder first, then the quick ones; as many as fit into the budget."""
        functions = self.entered.get(path, {})
        entering = set(functions.get(function, ()) if function != MODULE else ())
        entering = entering or {test for tests in functions.values() for test in tests}
        tests = [t for t in self.seconds if t in entering]
        tests = tests or [t for t in self.seconds if mirrors(t, path)]
        first = sorted(tests, key=lambda t: (not mirrors(t, path), self.seconds[t]))
        chosen, total = list[str](), 0.0
        for test in first:
            total += self.seconds[test]
            if chosen and total > budget_s:
                break
            chosen.append(test)
        files = list(
            dict.fromkeys(map(file_of, chosen))
        )  # a file's tests stay together: they share what it prepares
        return sorted(chosen, key=lambda t: files.index(file_of(t)))


def file_of(test: str) -> str:
    return test.partition("::")[0]


def mirrors(test: str, path: str) -> bool:
    """Whether a test file lies in the folder of tests that mirrors the code's."""
    return str(Path(test.partition("::")[0]).parent) == str(Path("tests") / Path(path).parent)


def test_of(context: str) -> str | None:
    """A test's name from coverage's context: its own process's (`test|run`), or that of a process it started (`test (call)`)."""
    for part in reversed(context.split("|")):
        if part.startswith("tests/"):
            return re.sub(r" \((setup|call|teardown)\)$", "", part)
    return None


def not_measured(root: Path, known: Measured) -> dict[str, str]:
    """Test files that were not measured as they are now, with their digests; what is gone is forgotten."""
    files = sorted((root / "tests").rglob("test_*.py"))
    now = {str(p.relative_to(root)): sha256(p.read_bytes()).hexdigest() for p in files}
    known.forget(set(known.digests) - set(now))
    return {file: digest for file, digest in now.items() if known.digests.get(file) != digest}
