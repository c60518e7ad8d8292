"""python -m tests.kept_words: write tests/data/words again, what commands print and write into tables, word for word.

A file a theme, to be reviewed as a diff: commands one after the other in a folder of results, each as a user types it, how it
ended, all that it said, the table that it wrote. Results are those of `tests/report_kinds.py` or come of logs, machines are
named, and numbers have the digits that processors share.
"""

import ast
import io
import re
from collections.abc import Callable, Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from harness.__main__ import main as ablate
from harness.store.claims import machine
from tests.foreign_logs import late_2024, year_2025
from tests.report_kinds import KINDS

FOLDER = Path(__file__).parent / "data" / "words"
BROKEN = "for x in\n"  # no Python
OWN = {  # experiments of one's own
    "halving": """
question: Which rate suits record 45?
base: r45
set: {data.corpus: fineweb10B}
changes: {}
axes: {optim.muon_lr: [x0.5, x0.7, x1.4, x2]}
budgets: [x0.25, x0.5]
halving: 2
seeds: 2
""",
    "without": """
question: What is each part of record 58 worth?
base: r58
set: {data.corpus: fineweb10B}
changes:
  smear: {model.smear: false}
  skip: {model.skip_layers: []}
""",
}


def own(folder: Path) -> None:
    for experiment, text in OWN.items():
        (folder / f"{experiment}.yaml").write_text(f"name: {experiment}{text}")


def logs(folder: Path) -> None:
    """Of three arms in two eras, four runs each, one log twice and one cut short."""
    eras = {"2024-11-10_UNet": (late_2024, 3.279), "2025-01-26_Batch": (year_2025, 3.275)}
    eras["2025-02-01_Rope"] = (year_2025, 3.2782)
    for arm, (era, loss) in eras.items():
        (folder / "logs" / arm).mkdir(parents=True)
        for i in range(4):
            log = era(loss + 0.001 * i, seed=i)
            (folder / "logs" / arm / f"run{i}.txt").write_text(log)
    (folder / "logs" / arm / "again.txt").write_text(log)
    (folder / "logs" / arm / "cut.txt").write_text(log[: len(log) // 3])


def scripts(folder: Path) -> None:
    """Two, and candidates for what the second was made from."""
    (folder / "older").mkdir()
    for side in ("old", "new"):
        text = (Path(__file__).parent / "trainers" / f"parts_{side}.py").read_text()
        (folder / f"{side}.py").write_text(text)
        (folder / "older" / f"like_{side}.py").write_text(f"{text}\nprint(1)\n")
    (folder / "older" / "broken.py").write_text(BROKEN)


FOLDERS: Mapping[str, Callable[[Path], object]] = {
    "own": own,
    "logs": logs,
    "scripts": scripts,
    **KINDS,
}
ON = "--on 8xH100"
COUNTED = "split --results . --accept-stale"
# theme -> a folder, commands there one after the other
ASKED: Mapping[str, list[tuple[str, ...]]] = {
    "compare": [
        ("ladder", f"compare {COUNTED}", f"compare {COUNTED} --format markdown"),
        ("budgets", f"compare {COUNTED}"),
        ("factorial", f"compare {COUNTED}"),
        ("unfinished", "compare split --results ."),
        ("confirmed", f"compare {COUNTED} --json"),
    ],
    "paper": [
        ("ladder", f"compare {COUNTED} --format latex", f"compare {COUNTED} --format csv"),
        ("tokens", f"compare {COUNTED} --format csv"),
        ("confirmed", f"compare {COUNTED} --format csv"),
        (
            "own",
            "compare published/ladder --format csv",
            "compare published/r09_ladder --format latex",
        ),
    ],
    "plan": [
        (
            "own",
            f"plan deltas/r46 {ON} --detect 0.01 --price-node 20",
            f"plan claims/attn_gate {ON} --seeds 1",
            f"plan deltas/r08 {ON} --json",
            f"plan halving.yaml {ON} --price-node 20",
            f"plan without.yaml {ON}",
            f"plan deltas/r46 claims/attn_gate nothing {ON}",
            f"plan late_cooldown {ON} --set data.corpus=fineweb10B",
        )
    ],
    "records": [("own", "records", "records r18", "diff r18 r28", "diff r07 r08 --json")],
    "significance": [
        (
            "own",
            "significance 3.2771 3.2783 3.2765 3.2779",
            "significance 3.281 3.279 3.28 --rule track3",
        )
    ],
    "noise": [("own", "noise", "noise --json")],
    "report": [
        (
            "budgets",
            f"report {COUNTED} -o page.html",
            "verify page.html",
            "verify page.html --json",
            f"export {COUNTED} -o runs.csv",
            f"export {COUNTED} -o arms.csv --arms",
            f"export {COUNTED} -o comparisons.csv --comparisons --json",
        ),
        ("unfinished", f"export {COUNTED} -o curves.csv --curves"),
    ],
    "results": [
        (
            "ladder",
            "status --results .",
            "status --results . --json",
            "clean --dry-run --results .",
            "rename split other --results .",
            "rename other other --results .",
            "cancel other --results .",
            "delete other --dry-run --runs --results .",
            "delete other --runs --results . --json",
            "status --results .",
        ),
        (
            "unfinished",
            "log 0e44 --results .",
            "log 0e44 --results . --json",
            "log 6c2f --results .",
            "push there --results .",
            "merge there --results other",
            "clean trunks caches --results other",
            "clean nothing --results other",
            "rename split new --results . --json",
        ),
    ],
    "split": [
        (
            "scripts",
            "split old.py new.py -o parts --gpus-per-run 0",
            "split --check parts --json",
            "split old.py new.py -o parts",
            "split new.py --parents older/like_old.py,older/like_new.py,older/broken.py,old.py -o p",
            "plan parts/experiment.yaml",
        )
    ],
    "import": [
        (
            "logs",
            "import logs --experiment public",
            "import logs --experiment public --json",
            "status public",
            "compare public",
            "chain public -o chain.html",
            "noise public",
            "significance public",
            "export public -o runs.csv",
        )
    ],
}
TABLE = re.compile(r"-o (\S+\.csv)")
DIGITS = re.compile(r"\d+\.\d{7,}(e[-+]\d+)?")


def said(words: str) -> str:
    """What a command prints in this folder, how it ends, and the table that it writes."""
    out, code = io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(out):
        try:
            ablate(words.split())
        except SystemExit as end:
            code = int(end.code or 0)
    text = out.getvalue() + "".join(Path(name).read_text() for name in TABLE.findall(words))
    text = text.replace(f"Python reads it ({of_broken()})", "Python reads it (...)")
    text = DIGITS.sub(lambda number: f"{float(number[0]):.6g}", text)
    return f"$ ablate {words}\n{text}" + (f"(exit {code})\n" if code else "")


@cache
def of_broken() -> str:
    """What Python says of a broken script, in the words of its version."""
    try:
        ast.parse(BROKEN)
    except SyntaxError as error:
        return error.msg
    raise AssertionError("it is Python")


def words_of(theme: str) -> str:
    """All that the commands of a theme say."""
    machine()  # is remembered: not by the name that the host has here
    texts = []
    for kind, *commands in ASKED[theme]:
        with TemporaryDirectory() as name, chdir(name):
            FOLDERS[kind](Path(name))
            here = patch.dict("os.environ", {"ABLATE_DATA": name})
            with here, patch("socket.gethostname", return_value="node"):
                texts += [said(words).replace(name, "FOLDER") for words in commands]
    return "\n".join(texts)


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path in FOLDER.glob("*.txt"):
        path.unlink()
    for theme in ASKED:
        (FOLDER / f"{theme}.txt").write_text(words_of(theme), encoding="utf-8")


if __name__ == "__main__":
    main()
