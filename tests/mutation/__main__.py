"""`make mutation`: how many of some random small sabotages do the tests notice, by module, and which do they not.

Every sabotage is made in a clone under build/mutation; the work tree is only read. The clone has a results folder, corpora
and temporary files of its own.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutation.fates import ALIVE, Fate, equivalents, table
from tests.mutation.forked import ENVIRONMENT, Outcome, import_what_is_not_ours, run_forked
from tests.mutation.killers import MEASURED, RUN_CONFIG, Measured, not_measured, within
from tests.mutation.mutants import Mutant, drawn, of_file
from tests.mutation.places import Places
from tests.mutation.tree import BUILD, CODE, FATES, TREE, Corpora, Sabotaged, code_files, make_tree

SLACK_S = 30.0  # beside three times what the tests took
SLOW_S = 600.0


def measure(known: Measured, file: Path, jobs: int) -> None:
    """Bring what is known of the tests up to date: coverage by test of the files that changed."""
    todo = not_measured(TREE, known)
    if not todo:
        return
    print(f"measuring {len(todo)} test files", flush=True)
    known.forget(todo)
    folder = BUILD / "coverage"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "tmp").mkdir(parents=True)
    config, told = folder / "coveragerc", folder / "told.json"
    config.write_text(RUN_CONFIG.format(data=folder / "seen"))
    options = ["-p", "no:cacheprovider", f"-m={MEASURED}", "--timeout=900"]
    options += ["--cov", "--cov-context=test", f"--cov-config={config}", "--cov-report="]
    options += ["-p", "tests.mutation.told"]
    options += ["-n", str(jobs), "--dist=loadfile"] if jobs > 1 else []
    own = {
        "TMPDIR": str(folder / "tmp"),
        "MUTATION_TOLD": str(told),
        "MUTATION_COVERAGE": str(config),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *todo],
        cwd=TREE,
        env=os.environ | ENVIRONMENT | own,
        capture_output=True,
        text=True,
    )
    if not told.exists():
        raise SystemExit(f"the tests could not be measured:\n{(done.stdout + done.stderr)[-4000:]}")
    known.add(TREE, folder, told)
    known.digests |= todo
    known.save(file)
    passed = sum(t.partition("::")[0] in todo for t in known.seconds)
    print(f"{passed} tests passed and are used", flush=True)


class Trial:
    """Sabotages tried one after the other, with what is known of the tests."""

    def __init__(self, known: Measured, budget_s: float, slow: bool) -> None:
        self.known, self.budget_s, self.slow = known, budget_s, slow
        self.equivalents = equivalents()
        self.corpora, self.files = Corpora(), Sabotaged()
        self.sound: set[str] = set()  # tests that pass in a fork, without a sabotage

    def fate(self, mutant: Mutant) -> Fate:
        began = time.monotonic()
        source = (TREE / mutant.path).read_text(encoding="utf-8")
        was, becomes = mutant.change(source)
        why = self.equivalents.get((mutant.path, was, becomes))
        end, by = ("equivalent", why) if why else self.end(mutant, source)
        self.corpora.restore()
        seconds = round(time.monotonic() - began, 1)
        found = {"was": was, "becomes": becomes, "end": end, "by": by, "seconds": seconds}
        return Fate(path=mutant.path, line=mutant.line, operator=mutant.operator, **found)

    def end(self, mutant: Mutant, source: str) -> tuple[str, str]:
        """(how it ended, by which test or in spite of how many)"""
        every = self.known.killers(mutant.path, Places(source), mutant.line)
        tests = within(every, self.known.seconds, self.budget_s)
        if not tests:
            return "untested", ""
        outcome = self.sabotaged(mutant, source, tests, 3 * self.seconds(tests) + SLACK_S)
        if outcome.failed and outcome.failed not in self.sound:
            alone = run_forked([outcome.failed], [], 3 * self.seconds([outcome.failed]) + SLACK_S)
            if not alone.passed:  # it fails here without a sabotage, too: not a witness
                self.known.seconds.pop(outcome.failed, None)
                return self.end(mutant, source)
            self.sound.add(outcome.failed)
        if outcome.timeout:
            return "timeout", ""
        if not outcome.passed:
            return "killed", outcome.failed or "no test file could be read"
        if self.slow:
            slow = [f"tests/{Path(mutant.path).parent}"]
            outcome = self.sabotaged(mutant, source, slow, SLOW_S, "-m=slow")
            if outcome.failed:
                return "killed", outcome.failed
        return "survived", f"{len(tests)} of {len(every)} tests"

    def sabotaged(
        self, mutant: Mutant, source: str, tests: Sequence[str], limit_s: float, *options: str
    ) -> Outcome:
        with self.files.as_text(TREE / mutant.path, mutant.code(source)):
            return run_forked(tests, options, limit_s)

    def seconds(self, tests: Sequence[str]) -> float:
        return sum(self.known.seconds.get(t, 0.0) for t in tests)


def last_run() -> tuple[list[Fate], list[Fate]]:
    """(what needs no second look, what survived) of the last run."""
    last = [Fate(**row) for row in json.loads(FATES.read_text())]
    return [f for f in last if f.end not in ALIVE], [f for f in last if f.end in ALIVE]


def survivors() -> list[Mutant]:
    """What survived the last run and stands in the code still."""
    left = {(fate.text, fate.operator) for fate in last_run()[1]}
    found = []
    for path in sorted({text[0] for text, _ in left}):
        source = (TREE / path).read_text(encoding="utf-8")
        lines = source.splitlines()
        of_path = {(operator, text[1]) for text, operator in left if text[0] == path}
        for mutant in of_file(path, source):
            at = (mutant.operator, lines[mutant.line - 1].strip())
            if at in of_path and mutant.is_code(source):
                key = ((path, *mutant.change(source)), mutant.operator)
                if key in left:
                    left.discard(key)
                    found.append(mutant)
    return found


def chosen(options: argparse.Namespace) -> list[Mutant]:
    files = code_files(options.paths)
    if options.again:
        return survivors()
    if not options.each:
        return drawn(TREE, files, options.n, options.seed)
    found = list[Mutant]()
    for module in sorted({Path(file).parent for file in files}):
        of_module = [file for file in files if Path(file).parent == module]
        found += drawn(TREE, of_module, options.each, options.seed)
    return random.Random(options.seed).sample(found, len(found))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("paths", nargs="*", default=list(CODE), help="folders or files of the code")
    parser.add_argument("-n", type=int, default=400, help="how many sabotages")
    parser.add_argument("--each", type=int, help="so many of every module instead")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--again", action="store_true", help="what survived the last run")
    parser.add_argument("--slow", action="store_true", help="survivors meet the slow tests, too")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of tests for each")
    parser.add_argument("--jobs", type=int, default=1, help="processes of the measuring run")
    parser.add_argument("--known", action="store_true", help="measure nothing: tests as known")
    parser.add_argument("--fresh", action="store_true", help="measure every test file again")
    options = parser.parse_args()
    make_tree()
    mutants = chosen(options)
    file = BUILD / "measured.json"
    known = Measured.load(file) if file.exists() and not options.fresh else Measured()
    if not options.known:
        measure(known, file, options.jobs)
    known.drop_gone(TREE)
    import_what_is_not_ours()
    trial = Trial(known, options.budget, options.slow)
    fates = last_run()[0] if options.again else []
    for i, mutant in enumerate(mutants, start=1):
        fates.append(trial.fate(mutant))
        print(f"{i}/{len(mutants)} {fates[-1].seconds:.0f} s {fates[-1]}", flush=True)
        FATES.write_text(json.dumps([vars(fate) for fate in fates], indent=1))
    text = table(fates)
    (BUILD / "table.txt").write_text(text + "\n", encoding="utf-8")
    print(f"\n{text}\n\nwritten under {BUILD}")


if __name__ == "__main__":
    main()
