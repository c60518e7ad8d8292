"""`make mutation`: how many of some random small sabotages do the tests notice, by module, and which do they not.

Every sabotage is made in a clone under build/mutation; the work tree is only read. The clone has a results folder, corpora
and temporary files of its own.
"""

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tests.mutation.killers import MEASURED, RUN_CONFIG, Measured, function_of, not_measured
from tests.mutation.mutants import Mutant, drawn

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "mutation"
TREE = BUILD / "tree"
CODE = ("harness", "model", "optim", "reports")
BUDGET_S = 120.0  # of tests for one sabotage, as they were measured
SLACK_S = 60.0  # for starting; beside three times what the tests took
PYTEST = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--timeout=200"]


def git(*arguments: str, at: Path = ROOT) -> str:
    done = subprocess.run(["git", *arguments], cwd=at, check=True, capture_output=True, text=True)
    return done.stdout


def code_files(paths: Sequence[str]) -> list[str]:
    """The tracked Python files under some paths, links not followed."""
    files = [f for f in git("ls-files", "--", *paths).splitlines() if f.endswith(".py")]
    return sorted(f for f in files if f.startswith(tuple(f"{folder}/" for folder in CODE)))


def make_tree() -> None:
    """A clone of the repository as the work tree is now, with a copy of its corpora."""
    shutil.rmtree(TREE, ignore_errors=True)
    BUILD.mkdir(parents=True, exist_ok=True)
    git("clone", "--quiet", "--shared", str(ROOT), str(TREE))
    for name in git("ls-files", "--cached", "--others", "--exclude-standard", "-z").split("\0"):
        ours, theirs = ROOT / name, TREE / name
        if name and not ours.exists() and not ours.is_symlink():
            theirs.unlink(missing_ok=True)
        elif name and not ours.is_symlink():
            theirs.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ours, theirs)
    if (ROOT / "data").exists():
        shutil.copytree(ROOT / "data", TREE / "data")


def run_tests(
    tests: Sequence[str], options: Sequence[str], limit_s: float, **variables: str
) -> tuple[int, str]:
    """(pytest's exit code, the end of what it said) in the clone; what it started ends with it."""
    temporary = BUILD / "tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    listed = BUILD / "tests.txt"
    listed.write_text("\n".join(tests))
    environment = os.environ | {
        "PYTHONPATH": str(TREE),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(temporary),
        "OMP_NUM_THREADS": "1",
        "ABLATE_DATA": str(TREE / "data"),
        **variables,
    }
    with open(BUILD / "said.txt", "w+") as said:
        process = subprocess.Popen(
            [*PYTEST, *options, f"@{listed}"],
            cwd=TREE,
            env=environment,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = -signal.SIGALRM
        finally:
            end_group(process)
        said.seek(0)
        return code, said.read()[-4000:]


def end_group(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def measure(known: Measured, file: Path, jobs: int) -> None:
    """Bring what is known of the tests up to date: coverage by test of the files that changed."""
    todo = not_measured(TREE, known)
    if not todo:
        return
    print(f"measuring {len(todo)} test files", flush=True)
    known.forget(todo)
    folder = BUILD / "coverage"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    config = folder / "coveragerc"
    config.write_text(RUN_CONFIG.format(data=folder / "seen"))
    options = [f"-m={MEASURED}", "--cov", "--cov-context=test", f"--cov-config={config}"]
    options += ["--cov-report=", "-p", "tests.mutation.told", "--timeout=900"]
    options += ["-n", str(jobs), "--dist=loadfile"] if jobs > 1 else []
    told = folder / "told.json"
    variables = {"MUTATION_TOLD": str(told), "MUTATION_COVERAGE": str(config)}
    code, said = run_tests([*todo], options, 7200, **variables)
    if not told.exists():
        raise SystemExit(f"the tests could not be measured (exit {code}):\n{said}")
    known.add(TREE, folder, told)
    known.digests |= todo
    known.save(file)
    passed = sum(t.partition("::")[0] in todo for t in known.seconds)
    print(f"{passed} tests passed and are used", flush=True)


def fate(mutant: Mutant, known: Measured) -> str:
    """killed, survived, timeout, or untested: no test enters its file."""
    file = TREE / mutant.path
    source = file.read_text(encoding="utf-8")
    function = function_of(source)(mutant.line)
    tests = known.killers(mutant.path, function, BUDGET_S)
    if not tests:
        return "untested"
    limit_s = 3 * sum(known.seconds[t] for t in tests) + SLACK_S
    file.write_text(mutant.code(source), encoding="utf-8")
    try:
        code, _ = run_tests(tests, ["-x"], limit_s)
    finally:
        file.write_text(source, encoding="utf-8")
    return {0: "survived", -signal.SIGALRM: "timeout"}.get(code, "killed")


class Corpora:
    """The clone's corpora, put back where a sabotage has spoiled them."""

    def __init__(self) -> None:
        self.kept = BUILD / "data"
        shutil.rmtree(self.kept, ignore_errors=True)
        if (TREE / "data").exists():
            shutil.copytree(TREE / "data", self.kept)
        self.state = self.read()

    def read(self) -> list[tuple[str, int, int]]:
        files = [p for p in sorted((TREE / "data").rglob("*")) if p.is_file()]
        return [(str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in files]

    def restore(self) -> None:
        if self.read() != self.state:
            shutil.rmtree(TREE / "data", ignore_errors=True)
            if self.kept.exists():
                shutil.copytree(self.kept, TREE / "data")
            self.state = self.read()


def table(fates: dict[Mutant, str]) -> str:
    """By module: killed of all; then what survived."""
    by_module: dict[str, list[str]] = defaultdict(list)
    for mutant, end in fates.items():
        by_module[str(Path(mutant.path).parent)].append(end)
    by_module["all"] = list(fates.values())
    lines = [f"{'module':<24}{'killed':>8}{'of':>6}{'share':>8}"]
    for module, ends in sorted(by_module.items(), key=lambda item: (item[0] == "all", item[0])):
        n = sum(end in ("killed", "timeout") for end in ends)
        lines.append(f"{module:<24}{n:>8}{len(ends):>6}{n / len(ends):>8.0%}")
    lines.append("")
    for mutant, end in fates.items():
        if end in ("survived", "untested"):
            shown = mutant.shown((TREE / mutant.path).read_text(encoding="utf-8"))
            lines.append(f"{end}: {shown}  [{mutant.operator}]")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("paths", nargs="*", default=list(CODE), help="folders or files of the code")
    parser.add_argument("-n", type=int, default=400, help="how many sabotages")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--jobs", type=int, default=1, help="processes of the measuring run")
    parser.add_argument("--fresh", action="store_true", help="measure every test file again")
    options = parser.parse_args()
    make_tree()
    mutants = drawn(TREE, code_files(options.paths), options.n, options.seed)
    file = BUILD / "measured.json"
    known = Measured.load(file) if file.exists() and not options.fresh else Measured()
    measure(known, file, options.jobs)
    corpora, fates = Corpora(), dict[Mutant, str]()
    for i, mutant in enumerate(mutants, start=1):
        began = time.monotonic()
        fates[mutant] = fate(mutant, known)
        corpora.restore()
        shown = mutant.shown((TREE / mutant.path).read_text(encoding="utf-8"))
        seconds = time.monotonic() - began
        print(f"{i}/{len(mutants)} {fates[mutant]} {seconds:.0f} s  {shown}", flush=True)
    text = table(fates)
    (BUILD / "table.txt").write_text(text + "\n", encoding="utf-8")
    print(f"\n{text}\n\nwritten to {(BUILD / 'table.txt').relative_to(ROOT)}")


if __name__ == "__main__":
    main()
