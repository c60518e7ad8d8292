"""Kept code as it is read: what is not, how data are read, what changed."""

from pathlib import Path
from zipfile import ZipFile

import pytest

from harness.run.code import CODE_LIMIT
from reports.submission.scripts import (
    data_readers,
    diff_of,
    kept_scripts,
    unread,
    validation_counts,
)

LOADS = """
import numpy as np
import torch

class Settings:
    files = "data/train_*.bin"
    steps = 100

def shard(name):
    return np.load(name)

def other():
    return torch.load("checkpoint.pt")
"""


def test_files_that_are_not_read_are_named_with_the_reason() -> None:
    scripts = {
        "sound.py": "a = 1",
        "old.py": "print 1",
        "long.py": "#" * (CODE_LIMIT + 1),
        "words.txt": "no code",
    }
    assert unread(scripts) == {
        "old.py": "it cannot be parsed",
        "long.py": "it is longer than 512 KiB",
    }


def test_numpys_loads_read_data_and_those_of_others_do_not() -> None:
    found = data_readers({"a.py": LOADS})
    assert list(found) == ["shard"]
    assert list(data_readers({"a.py": "from numpy import load\ndef f(): return load('x')"})) == [
        "f"
    ]
    assert list(data_readers({"a.py": "def f(): return load('x')"})) == []


def test_data_that_are_read_outside_of_functions_and_what_a_reader_is_given_count_too() -> None:
    used = LOADS + "for batch in map(torch.tensor, shard(Settings.files)):\n    print(batch)\n"
    found = data_readers({"a.py": used})
    assert found["the top level"] == "map(torch.tensor, shard(Settings.files))"
    assert found["files"] == "files = 'data/train_*.bin'"
    assert found.keys() == {"shard", "the top level", "files"}
    declared = "class Settings:\n    files: str\nf.readinto(Settings.files)\n"
    assert data_readers({"a.py": declared}) == {"the top level": "f.readinto(Settings.files)"}
    under = "if __name__ == '__main__':\n    with open('x') as f:\n        f.readinto(b)\n"
    assert data_readers({"a.py": under}) == {"the top level": "f.readinto(b)"}


def test_a_diff_has_the_lines_that_editors_count() -> None:
    old, new = {"a.py": "x = '\x0c'\ny = 1\n"}, {"a.py": "x = '\x0c'\ny = 2\n"}
    lines = diff_of(old, new).split("\n")
    assert lines[2:] == ["@@ -1,2 +1,2 @@", " x = '\x0c'", "-y = 1", "+y = 2", ""]


def test_a_script_under_another_name_is_one_and_of_several_each_is_gone_or_new() -> None:
    one = diff_of({"a.py": "x = 1\n"}, {"b.py": "x = 2\n"})
    assert one.splitlines()[:2] == ["--- a.py", "+++ b.py"] and "/dev/null" not in one
    several = diff_of({"a.py": "x = 1\n", "b.py": "y\n"}, {"c.py": "x = 2\n", "d.py": "y\n"})
    headers = [line for line in several.splitlines() if line[:4] in ("--- ", "+++ ")]
    assert {*zip(headers[::2], headers[1::2], strict=True)} == {
        *((f"--- {name}", "+++ /dev/null") for name in ("a.py", "b.py")),
        *(("--- /dev/null", f"+++ {name}") for name in ("c.py", "d.py")),
    }


def test_a_digest_that_leads_elsewhere_is_no_kept_code(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "other").mkdir()
    for place in ("other/a", "code/b"):
        with ZipFile(tmp_path / f"{place}.zip", "w") as made:
            made.writestr("a.py", "a = 1")
    assert kept_scripts(tmp_path, "b") == {"a.py": "a = 1"}
    assert kept_scripts(tmp_path, "../other/a") is None
    assert kept_scripts(tmp_path, None) is None


def test_code_that_is_not_there_or_damaged_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    assert kept_scripts(tmp_path, "a") is None
    (tmp_path / "code" / "a.zip").write_bytes(b"no archive")
    assert kept_scripts(tmp_path, "a") is None


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("val_tokens: int = 20 * 524288", {10485760}),
        ("args.val_tokens = 5 + 2", {7}),
        ("train(val_tokens=7 // 2)", {3}),
        ("n = val_tokens = 0 + 5", {5}),
        ("val_tokens = 7 // 0", set()),
        ("val_tokens = 7 - 2", set()),
        ("val_tokens = n * 8", set()),
        ("val_tokens = 8 * n", set()),
        ("val_tokens = True", set()),
        ("val_tokens: int", set()),
        ("n: int = 5", set()),
        ("n = 5", set()),
        ("train(n=5)", set()),
    ],
)
def test_the_number_of_validation_tokens_is_read_however_the_code_sets_it(
    line: str, counts: set[int]
) -> None:
    assert validation_counts({"a.py": line}) == counts
