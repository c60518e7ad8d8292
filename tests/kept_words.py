"""python -m tests.kept_words: write tests/data/words again, what commands that only look print, word for word.

A file a command, to be reviewed as a diff: its ways of being asked, each as a user types it, how it ended and all that it
said. Results are those of `tests/report_kinds.py`, machines are named, and numbers have the digits that
processors share.
"""

import io
import re
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from harness.__main__ import main as ablate
from tests.report_kinds import KINDS

FOLDER = Path(__file__).parent / "data" / "words"
NOTHING = "nothing"  # in place of a kind: a folder without results
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
MACHINE = "--on 8xH100"
DIGITS = re.compile(r"\d+\.\d{7,}(e[-+]\d+)?")
ASKED = {  # command -> of which results, how
    "compare": [
        ("ladder", "split --results . --accept-stale"),
        ("ladder", "split --results . --accept-stale --format markdown"),
        ("budgets", "split --results . --accept-stale"),
        ("factorial", "split --results . --accept-stale"),
        ("unfinished", "split --results ."),
    ],
    "plan": [
        (NOTHING, f"deltas/r46 {MACHINE} --detect 0.01 --price-node 20"),
        (NOTHING, f"claims/attn_gate {MACHINE} --seeds 1"),
        (NOTHING, f"deltas/r08 {MACHINE} --json"),
        (NOTHING, f"halving.yaml {MACHINE} --price-node 20"),
        (NOTHING, f"without.yaml {MACHINE}"),
    ],
    "records": [(NOTHING, "")],
    "diff": [(NOTHING, "r18 r28"), (NOTHING, "r07 r08 --json")],
    "significance": [
        (NOTHING, "3.2771 3.2783 3.2765 3.2779"),
        (NOTHING, "3.281 3.279 3.28 --rule track3"),
    ],
}


def said(folder: Path, words: list[str]) -> str:
    """What a command prints in a folder, and how it ends."""
    out, code = io.StringIO(), 0
    no_corpora = patch.dict("os.environ", {"ABLATE_DATA": str(folder)})
    with chdir(folder), no_corpora, redirect_stdout(out), redirect_stderr(out):
        try:
            ablate(words)
        except SystemExit as end:
            code = int(end.code or 0)
    text = DIGITS.sub(lambda number: f"{float(number[0]):.6g}", out.getvalue())
    return f"$ ablate {' '.join(words)}\n{text}" + (f"(exit {code})\n" if code else "")


def words_of(command: str) -> str:
    """All that a command says in its ways of being asked."""
    texts = []
    for kind, how in ASKED[command]:
        with TemporaryDirectory() as name:
            if kind == NOTHING:
                for experiment, text in OWN.items():
                    (Path(name) / f"{experiment}.yaml").write_text(f"name: {experiment}{text}")
            else:
                KINDS[kind](Path(name))
            texts.append(said(Path(name), [command, *how.split()]))
    return "\n".join(texts)


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path in FOLDER.glob("*.txt"):
        path.unlink()
    for command in ASKED:
        (FOLDER / f"{command}.txt").write_text(words_of(command), encoding="utf-8")


if __name__ == "__main__":
    main()
