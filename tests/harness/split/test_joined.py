"""Modules that differ too between OLD and NEW: they stand in the scripts, or are refused in a line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import UserError
from harness.foreign.log_code import program_in
from harness.split.joined import joined
from tests.foreign_bench import ablate

SCRIPT = b"""\
import torch
from kernels import fast as f, DEPTH

def train(x):
    return f(x) + DEPTH
"""
MODULE = b"""\
import torch
DEPTH = 2

def fast(x):
    return torch.relu(x)

if __name__ == '__main__':
    fast(1)
"""
DASHES = "-" * 40
LOG = f"""\
{SCRIPT.decode()}

{DASHES}
# kernels.py
{DASHES}

{MODULE.decode()}
{"=" * 100}
Running Python 3.12
{"=" * 100}
step:1/2 val_loss:3.5 train_time:100ms
"""


def test_a_module_stands_where_it_was_imported_and_is_not_run_as_a_script() -> None:
    text = joined(SCRIPT, {"kernels.py": MODULE}, where="OLD").decode()
    before, _, after = text.partition("f = fast\n")
    assert "def fast(x):" in before and "DEPTH = 2" in before and "__main__" not in text
    assert "def train(x):" in after and "kernels" not in text
    again = joined(SCRIPT + b"from kernels import DEPTH as D\n", {"kernels.py": MODULE}, where="")
    assert again.decode().count("def fast") == 1 and b"D = DEPTH" in again


def test_what_a_module_promises_from_the_future_holds_for_the_whole_text_and_stands_first() -> None:
    module = b"from __future__ import annotations\n" + MODULE.replace(b"fast(x)", b"fast(x: Later)")
    text = joined(b"'''What it is.'''\n" + SCRIPT, {"kernels.py": module}, where="OLD").decode()
    first, second, *rest = text.splitlines()
    assert (first, second) == ('"""What it is."""', "from __future__ import annotations")
    assert "__future__" not in "".join(rest)
    compile(text, "OLD", "exec")
    there = {"kernels.py": MODULE}
    again = joined(b"from __future__ import annotations\n" + SCRIPT, there, where="").decode()
    assert again.startswith("from __future__ import annotations\nimport torch\n")


@pytest.mark.parametrize(
    ("script", "module", "said"),
    [
        (b"import kernels\n", MODULE, "by its import of kernels"),
        (b"def f():\n    from kernels import fast\n", MODULE, "by its import of kernels"),
        (SCRIPT + b"DEPTH = 3\n", MODULE, "since both give 'DEPTH'"),
        (SCRIPT + b"def fast(y):\n    return y\n", MODULE, "since both give 'fast'"),
        (b"import numpy as torch\n" + SCRIPT[13:], MODULE, "since both give 'torch'"),
        (b"from numpy import torch\n" + SCRIPT[13:], MODULE, "since both give 'torch'"),
        (b"from a import x as torch\n" + SCRIPT[13:], MODULE, "since both give 'torch'"),
        (SCRIPT + b"fast, y = 1, 2\n", MODULE, "since both give 'fast'"),
        (SCRIPT + b"class fast:\n    x = 1\n", MODULE, "since both give 'fast'"),
        (SCRIPT + b"async def fast():\n    pass\n", MODULE, "since both give 'fast'"),
        (SCRIPT, b"def fast(:\n", "kernels.py: cannot be read as Python"),
    ],
)
def test_what_cannot_stand_in_one_text_is_refused(
    script: bytes, module: bytes, said: str, kept_line: Callable[[str], None]
) -> None:
    with pytest.raises(UserError) as error:
        joined(script, {"kernels.py": module}, where="OLD x")
    assert said in str(error.value) and "\n" not in str(error.value)
    whole, _, of_python = str(error.value).partition("Python: ")  # which words those are it says
    kept_line(f"{whole}{'Python: ...' if of_python else ''}")


@pytest.mark.parametrize(
    "line",
    [
        "import torch",
        "import torch.nn",
        "import torch.optim as optim, os",
        "from os import path, sep as s",
        "x.fast = 1",
        "fastest = DEPTH",
        "f(fast=1)",
    ],
)
def test_what_both_import_alike_and_what_is_no_name_of_both_may_stand_in_one_text(
    line: str,
) -> None:
    module = MODULE + f"{line}\n".encode() * ("import" in line)
    text = joined(SCRIPT + f"{line}\n".encode(), {"kernels.py": module}, where="OLD").decode()
    assert text.endswith(f"{line}\n") and "def fast" in text


def test_a_log_has_its_script_and_the_files_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "run.txt"
    path.write_text(LOG)
    program = program_in(path)
    assert program is not None and program.script.strip() == SCRIPT.strip()
    assert [*program.modules] == ["kernels.py"]
    assert program.modules["kernels.py"].strip() == MODULE.strip()


def test_logs_whose_module_differs_are_taken_apart_and_the_same_one_stays_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old.txt").write_text(LOG)
    Path("new.txt").write_text(LOG.replace("+ DEPTH", "* DEPTH").replace("DEPTH = 2", "DEPTH = 3"))
    Path("same.txt").write_text(LOG.replace("+ DEPTH", "- DEPTH"))
    assert ablate("split", "old.txt", "new.txt", "-o", "parts") == 0
    changes = Path("parts/changes.yaml").read_text()
    assert "DEPTH: 2 → 3" in changes and "train: Add → Mult" in changes
    assert "def fast" in Path("parts/old/train_gpt.py").read_text()
    assert ablate("split", "old.txt", "same.txt", "-o", "others") == 0
    assert "from kernels import" in Path("others/old/train_gpt.py").read_text()
    assert Path("others/old/kernels.py").read_bytes().strip() == MODULE.strip()
    assert ablate("split", "--check", "parts") == 0
