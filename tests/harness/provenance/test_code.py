"""The code of a script as it is kept: which packages it needs, and that what is unpacked is what was kept."""

from pathlib import Path

import pytest

from harness.errors import UserError
from harness.provenance.code import Code, read_code

SCRIPTS = {  # its text -> whether it needs torch
    "import os, torch.nn as nn": True,
    "from torch.optim import AdamW": True,
    "import numpy": False,
    "import torchvision": False,
    "from .torch import x": False,
    "try:\n    import torch\nexcept ImportError:\n    pass": False,
    "def f():\n    import torch": False,
    "import torch and more": False,
    "import torch\n\0": False,
}


@pytest.mark.parametrize("text", SCRIPTS)
def test_a_script_needs_what_it_imports_at_its_top(text: str) -> None:
    code = Code(script="train.py", files={"train.py": text.encode(), "b.py": b"import torch"})
    assert code.imports("torch") == SCRIPTS[text]


def test_code_that_is_gone_damaged_or_another_is_refused(tmp_path: Path) -> None:
    code = Code(script="a.py", files={"a.py": b"x = 1\n", "b.py": b"y = 2\n"})
    archive, digest = tmp_path / "kept.zip", code.source.digest
    end = ": bring the script back, or start anew"
    with pytest.raises(UserError) as gone:
        read_code(archive, "a.py", digest=digest)
    is_gone = f"{archive}: the code that ran is gone or damaged (No such file or directory)"
    assert str(gone.value) == f"{is_gone}{end}"
    archive.write_bytes(code.zipped())
    assert read_code(archive, "a.py", digest=digest) == code
    with pytest.raises(UserError) as another:
        read_code(archive, "b.py", digest=digest)
    assert str(another.value) == f"{archive}: is not the code that its name says{end}"
    archive.write_bytes(code.zipped()[:-30])
    with pytest.raises(UserError, match=r"is gone or damaged \(no archive: .*\): bring the script"):
        read_code(archive, "a.py", digest=digest)


def test_a_clean_copy_has_its_folders_and_only_what_opens_as_a_program_is_one(
    tmp_path: Path,
) -> None:
    files = {"a/b/run.sh": b"#!/bin/sh\n", "a/b.py": b"x = 1  #!\n", "empty": b""}
    Code(script="a/b.py", files=files).write(tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in files} == files
    modes = [(tmp_path / name).stat().st_mode & 0o111 for name in files]
    assert modes == [0o111, 0, 0]
    assert (tmp_path / "a/b/run.sh").stat().st_mode & 0o777 == 0o755
