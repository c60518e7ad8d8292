"""Data in a clean copy: links at the places that were named, and code beside them stays."""

import os
from pathlib import Path

import pytest

from harness.foreign.linked_data import link_data


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    """A folder of data, with another one in it."""
    folder = tmp_path / "tokens"
    (folder / "val").mkdir(parents=True)
    (folder / "train.bin").write_text("train")
    (folder / "val/a.bin").write_text("val")
    return folder


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    folder = tmp_path / "copy"
    folder.mkdir()
    return folder


def test_a_place_deep_in_the_copy_is_made(tokens: Path, copy: Path) -> None:
    link_data({"a/b/tokens": str(tokens), "c/one.bin": str(tokens / "train.bin")}, copy)
    assert os.readlink(copy / "a/b/tokens") == str(tokens)
    assert (copy / "a/b/tokens/val/a.bin").read_text() == "val"
    assert (copy / "c/one.bin").read_text() == "train"


def test_a_folder_that_holds_code_gets_what_it_lacks_piece_by_piece(
    tokens: Path, copy: Path
) -> None:
    (copy / "data/val").mkdir(parents=True)
    (copy / "data/load.py").write_text("code")
    (copy / "data/val/a.bin").write_text("mine")
    (tokens / "val/b.bin").write_text("more")
    link_data({"data": str(tokens)}, copy)
    assert not (copy / "data").is_symlink() and not (copy / "data/val").is_symlink()
    assert (copy / "data/load.py").read_text() == "code"
    assert (copy / "data/train.bin").is_symlink() and (copy / "data/val/b.bin").is_symlink()
    assert (copy / "data/val/a.bin").read_text() == "mine"
    assert (tokens / "val/a.bin").read_text() == "val"


def test_what_is_at_a_files_place_stays(tokens: Path, copy: Path) -> None:
    (copy / "train.bin").write_text("mine")
    link_data({"train.bin": str(tokens / "train.bin")}, copy)
    assert (copy / "train.bin").read_text() == "mine"
