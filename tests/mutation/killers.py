"""Which tests can notice a sabotage: those that reach its statement, as coverage by test saw them do."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from tests.doubles import doubles
from tests.mutation.places import MODULE, Places

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
# that dataclasses are frozen, that a zip is strict; what numbers are built in, which toggles there are
LAWS_OF_TEXT = (
    "tests/laws/test_plain_lines.py",
    "tests/laws/test_docs.py::test_generated_pages",
)
# tests that hold all that they reach, word for word
KEPT = ("/test_kept_", "::test_generated_pages")
N_KEPT = 5  # of them go first
MEASURED = "not slow and not gpu and not browser and not slurm"


@dataclass
class Measured:
    """Kept between runs: a test file is measured again when it has changed, code is known by its functions' texts."""

    digests: dict[str, str] = field(default_factory=dict)  # of test files
    seconds: dict[str, float] = field(default_factory=dict)  # of every test that passed
    # file -> function -> digest of its text -> test -> the lines it reached, as bits from the first
    reached: dict[str, dict[str, dict[str, dict[str, str]]]] = field(default_factory=dict)

    @classmethod
    def load(cls, file: Path) -> "Measured":
        return cls(**json.loads(file.read_text()))

    def save(self, file: Path) -> None:
        file.write_text(json.dumps(vars(self)))

    def forget(self, test_files: Iterable[str]) -> None:
        gone = set(test_files)
        self.digests = {f: d for f, d in self.digests.items() if f not in gone}
        self.seconds = {t: s for t, s in self.seconds.items() if file_of(t) not in gone}
        for functions in self.reached.values():
            for digests in functions.values():
                for digest, tests in digests.items():
                    digests[digest] = {t: m for t, m in tests.items() if file_of(t) not in gone}

    def drop_gone(self, root: Path) -> None:
        """Without the tests that their files no longer define, and those that are slow as doubles."""
        texts = {f: (root / f).read_text() if (root / f).exists() else "" for f in self.digests}
        slow = doubles()
        for test in [*self.seconds]:
            name = test.rpartition("::")[2].partition("[")[0]
            if test in slow or f"def {name}(" not in texts.get(file_of(test), ""):
                del self.seconds[test]

    def add(self, root: Path, folder: Path, told: Path) -> None:
        """What a run of tests reached, by coverage's files in a folder, and which of them passed."""
        self.seconds |= json.loads(told.read_text())
        found: dict[tuple[str, str, str, str], int] = defaultdict(int)
        places: dict[str, Places] = {}
        for part in folder.glob("seen*"):
            for name, line, tests in lines_of(part, root):
                if name not in places:
                    places[name] = Places((root / name).read_text(encoding="utf-8"))
                function = places[name].function(line)
                for test in tests:
                    at = (name, function.name, function.digest, test)
                    found[at] |= 1 << max(0, line - function.first)  # an empty file runs line 0
        for (name, function_name, digest, test), lines in found.items():
            by_digest = self.reached.setdefault(name, {}).setdefault(function_name, {})
            tests_of = by_digest.setdefault(digest, {})
            tests_of[test] = f"{lines | int(tests_of.get(test, '0'), 16):x}"

    def killers(self, path: str, places: Places, line: int) -> list[str]:
        """The tests to run: laws that read the text, the quickest of those that hold every word, the folder's own, all others.

        Those that reach the statement; of one outside every function, those that enter a function which names
        what it defines, and the laws that read the text. Where no test does: those that enter the file, those of
        the mirroring folder.
        """
        functions = self.reached.get(path, {})
        every = {t for name in functions for t in self._entering(functions[name])}
        is_outside = places.function(line).name == MODULE
        laws = list[str]()
        if is_outside or "strict=" in places.lines[line - 1]:
            laws = [t for t in self.seconds if t.startswith(LAWS_OF_TEXT)]
        if is_outside:
            users = places.users(line)
            chosen = {t for name in users for t in self._entering(functions.get(name, {}))}
        else:
            chosen = self._reaching(functions, places, line)
        for found in (chosen, every, {t for t in self.seconds if mirrors(t, path)}):
            tests = [t for t in self.seconds if t in found and t not in laws]
            if tests:
                quick = sorted(tests, key=lambda t: self.seconds[t])
                first = [t for t in quick if any(kept in t for kept in KEPT)][:N_KEPT]
                rest = [t for t in quick if t not in first]
                return laws + first + sorted(rest, key=lambda t: not mirrors(t, path))
        return laws

    @staticmethod
    def _entering(digests: dict[str, dict[str, str]]) -> set[str]:
        return {test for tests in digests.values() for test in tests}

    def _reaching(self, functions: dict, places: Places, line: int) -> set[str]:
        function, found = places.function(line), set[str]()
        wanted = 0
        for number in places.statement(line):
            wanted |= 1 << max(0, number - function.first)
        for digest, tests in functions.get(function.name, {}).items():
            known = digest == function.digest  # if not, its lines are others now
            found |= {t for t, mask in tests.items() if not known or int(mask, 16) & wanted}
        return found


def lines_of(part: Path, root: Path) -> Iterator[tuple[str, int, set[str]]]:
    """(file, line, tests) of one of coverage's files."""
    from coverage import CoverageData
    from coverage.exceptions import DataError

    seen = CoverageData(str(part))
    try:
        seen.read()
    except DataError:  # its process was killed before it wrote anything
        return
    for file in seen.measured_files():
        path = Path(file)
        if path.is_relative_to(root) and path.exists():
            for line, contexts in seen.contexts_by_lineno(file).items():
                tests = set(filter(None, map(test_of, contexts)))
                if tests:
                    yield str(path.relative_to(root)), line, tests


def within(tests: list[str], seconds: dict[str, float], budget_s: float) -> list[str]:
    """The first tests that fit into the budget; a file's stay together, they share what it prepares."""
    chosen, total = list[str](), 0.0
    for test in tests:
        total += seconds[test]
        if chosen and total > budget_s:
            break
        chosen.append(test)
    files = list(dict.fromkeys(map(file_of, chosen)))
    return sorted(chosen, key=lambda t: files.index(file_of(t)))


def file_of(test: str) -> str:
    return test.partition("::")[0]


def mirrors(test: str, path: str) -> bool:
    """Whether a test file lies in the folder of tests that mirrors the code's."""
    return str(Path(file_of(test)).parent) == str(Path("tests") / Path(path).parent)


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
