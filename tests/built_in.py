"""docs/numbers.md from the code: limits, waits, thresholds and tolerances that are built in. `python -m tests.built_in` writes it."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "numbers.md"
# package -> what it is about, in the order of the page
PARTS = {
    "harness": "The program",
    "harness/config": "Configurations",
    "harness/experiment": "Experiments and their costs",
    "harness/corpora": "Corpora",
    "harness/data": "Reading tokens",
    "model": "The network",
    "optim": "The optimizers",
    "harness/training": "Training",
    "harness/runner": "The runner, Slurm and Ray",
    "harness/node": "The machine",
    "harness/store": "The folder of results",
    "harness/run": "Files of a run",
    "harness/provenance": "What is recorded, and secrets",
    "harness/push": "Sending results",
    "harness/track": "Trackers",
    "harness/foreign": "Foreign scripts and logs",
    "harness/split": "Splitting a difference of two scripts",
    "harness/cli": "The command line",
    "harness/bench": "Acceptance and benchmarks",
    "reports": "Numbers in words",
    "reports/inputs": "Reading results",
    "reports/stats": "Statistics",
    "reports/analysis": "Comparisons",
    "reports/page": "The page",
    "reports/figures": "Figures",
    "reports/paper": "Tables and figures for a paper",
    "reports/submission": "Submissions",
    "reports/verify": "The second path of `verify`",
}
BEGIN = """# Numbers that are built in

Limits, waits, thresholds and tolerances that stand at the top of the program's files, with what each is of where the code says it.
Settings of a training are [toggles](toggles.md); what an experiment may set is in [experiments](experiments.md). `make docs` writes this
page.
"""
NAME = r"_?[A-Z][A-Z0-9_]*"
# numbers and what is computed of them alone
NUMBER = re.compile(
    rf"({NAME}(?:, {NAME})*)(?:: [^=]+)? = ([-+*/<().,\d_ e]*\d[-+*/<().,\d_ e]*?)(?:  # (.+))?"
)


def numbers(folder: Path) -> Iterator[tuple[str, str, str, str]]:
    """(name, value as it is written, what it is of, file below the folder); what it is of stands behind or above it."""
    of_package = "**/*.py" if folder.parent != ROOT else "*.py"
    for path in sorted(folder.glob(of_package)):
        above: list[str] = []
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("# "):
                above.append(line[2:])
                continue
            if found := NUMBER.fullmatch(line):
                name, value, behind = found.groups()
                words = behind or " ".join(above)
                yield name, value, words.replace("|", "\\|"), path.relative_to(folder).as_posix()
            above = []


def pages() -> Mapping[Path, str]:
    """Generated file -> its content."""
    lines = [BEGIN]
    for part, title in PARTS.items():
        rows = [
            f"| `{name}` | `{value}` | {words} | `{file}` |"
            for name, value, words, file in numbers(ROOT / part)
        ]
        if rows:
            head = [f"## {title}", "", f"| | | | in `{part}` |", "|---|---|---|---|"]
            lines += [*head, *rows, ""]
    return {PAGE: "\n".join(lines)}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
        print(path)
