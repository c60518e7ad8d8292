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


def test_comments_count_in_what_is_too_long_to_be_parsed_and_in_what_is_no_python() -> None:
    def digest(name: str, content: bytes) -> str:
        return Code(script=name, files={name: content}).source.files[name]

    for n, counts in ((1 << 19, False), ((1 << 19) + 1, True)):
        texts = [b"x = 1\n".ljust(n, mark) for mark in (b"#", b"\n")]
        assert (digest("a.py", texts[0]) != digest("a.py", texts[1])) is counts
    for name, text in (("a.sh", b"x = 1"), ("a.py", b"x = ("), ("a.py", b"x = '\xff'")):
        assert digest(name, text) != digest(name, text + b"#")
        assert len(digest(name, text)) == 16


def test_code_that_is_too_much_to_keep_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Code(script="a.py", files={"a.py": b"x = 1\n", "b.py": b"y = 2\n"})
    content = kept.zipped()
    for size, said in (
        (len(content), None),
        (len(content) - 1, "its archive has 0 MiB, more than the 0 MiB that one may"),
        (1, "2 files of 0 MiB are more than code may have (1 files, 256 MiB)"),
    ):
        monkeypatch.setattr("harness.provenance.code.MOST_OF_OTHERS", size)
        monkeypatch.setattr("harness.run.archive.MAX_FILES", min(size, 2))
        if said is None:
            assert kept.zipped() == content
            continue
        with pytest.raises(UserError) as refused:
            kept.zipped()
        end = "name less of it; data is linked"
        assert str(refused.value) == f"the code of a.py: {said}: {end}"
