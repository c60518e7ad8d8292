"""The second start of a compiled configuration compiles nothing, even where its first shared a worker with another's."""

import os
import shutil
from pathlib import Path

import pytest

from tests.fake_matrix import Matrix

# a compiler that counts its calls; the library asks it at every start what it understands, and for its headers (-E)
COUNTING = """#!/bin/sh
for word in "$@"; do [ "$word" = -E ] && exec {compiler} "$@"; done
case "$*" in *.cpp*) echo "$*" >> {calls};; esac
exec {compiler} "$@"
"""
COMPILED = (
    "--max-parallel",
    "1",
    "--set",
    "system.compile=on",
    "--set",
    "schedule.steps=1",
    "--set",
    "model.n_layer=1",
)


@pytest.mark.slow
@pytest.mark.long
def test_the_second_start_compiles_nothing(tmp_path: Path) -> None:
    calls, counting = tmp_path / "calls", tmp_path / "c++"
    counting.write_text(
        COUNTING.format(compiler=shutil.which(os.environ.get("CXX", "g++")), calls=calls)
    )
    counting.chmod(0o755)
    matrix = Matrix(tmp_path, n_seeds=1, real=True, CXX=str(counting))
    code, out, err = matrix.run(*COMPILED)
    assert (code, err) == (0, ""), out + err
    assert len(calls.read_text().splitlines()) >= 4  # two arms, forward and backward
    calls.unlink()
    code, out, err = matrix.run(*COMPILED, "--seeds", "2", "--worker", "fresh")
    assert (code, err) == (0, ""), out + err
    assert len(matrix.statuses()) == 4
    assert not calls.exists(), calls.read_text()
