"""Files as they are written: whole on the disk before they have their name, and in a place of their own where there must be none."""

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from harness.run.files import append_row, json_text, write_json, write_new, write_text, write_whole
from tests.open_files import open_below


@pytest.fixture
def flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """What a folder's files hold at every flush to the disk, and whether the folder itself is flushed."""
    seen: list[dict[str, str]] = []

    def sync(descriptor: int) -> None:
        files = {path.name[:5]: path.read_text() for path in tmp_path.iterdir()}
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        seen.append(files | ({"folder": "flushed"} if is_folder else {}))

    monkeypatch.setattr(os, "fsync", sync)
    return seen


def test_a_file_is_whole_on_the_disk_before_it_has_its_name(
    tmp_path: Path, flushed: list[dict[str, str]]
) -> None:
    write_text(tmp_path / "a.txt", "new")
    write_new(tmp_path / "b.txt", "other")
    whole = {"a.txt": "new"}
    assert flushed == [
        {".a.tx": "new"},
        whole | {"folder": "flushed"},
        whole | {".b.tx": "other"},
        whole | {"b.txt": "other", "folder": "flushed"},
    ]


def test_rows_are_on_the_disk_when_they_were_added(
    tmp_path: Path, flushed: list[dict[str, str]]
) -> None:
    append_row(tmp_path / "rows", {"a": 1}, {"b": "é"})
    first = '{"a": 1}\n{"b": "\\u00e9"}\n'
    assert flushed == [{"rows": first}]
    with (tmp_path / "rows").open("a") as file:
        file.write('{"torn')
    append_row(tmp_path / "rows", {"c": 3})
    assert flushed[1:] == [{"rows": f'{first}{{"torn\n{{"c": 3}}\n'}]
    append_row(tmp_path / "rows", {"d": 4})
    assert flushed[2:] == [{"rows": f'{first}{{"torn\n{{"c": 3}}\n{{"d": 4}}\n'}]


def test_a_mapping_is_an_entry_a_line_and_so_are_the_mappings_of_a_list(tmp_path: Path) -> None:
    value = {"a": [1, 2], "é": [{"b": {"c": "é"}}, {"d": 4}], "e": {"f": []}}
    text = (
        '{\n "a": [1, 2],\n "\\u00e9": [\n  {"b": {"c": "é"}},\n  {"d": 4}\n ],\n'
        ' "e": {"f": []}\n}\n'
    )
    assert json_text(value) == text
    assert (json_text({}), json_text([{"a": 1}])) == ("{}\n", '[\n  {"a": 1}\n ]\n')
    write_json(tmp_path / "x.json", value)
    assert (tmp_path / "x.json").read_text(encoding="utf-8") == text


@pytest.mark.parametrize("links", ["links", "no links", "an answer that is lost"])
def test_a_new_file_takes_the_place_of_none(
    links: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = os.link

    def link(source: Any, place: Any) -> None:
        if links == "no links":
            raise OSError(errno.EPERM, "Operation not permitted")
        really(source, place)
        if links == "an answer that is lost":
            raise FileExistsError(errno.EEXIST, "File exists")

    monkeypatch.setattr(os, "link", link)
    path = tmp_path / "key"
    write_new(path, b"first", mode=0o600)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"first", 0o600)
    with pytest.raises(FileExistsError):
        write_new(path, "second")
    assert path.read_bytes() == b"first" and os.listdir(tmp_path) == ["key"]


def test_files_are_as_open_as_the_user_lets_them_be_and_none_is_left_open(tmp_path: Path) -> None:
    writers = {
        "whole": lambda path: write_text(path, "x", below=1),
        "new": lambda path: write_new(path, "x"),
        "rows": lambda path: append_row(path, {}, below=1),
    }
    for umask, mode in ((0, 0o666), (0o027, 0o640)):
        before = os.umask(umask)
        try:
            for name, write in writers.items():
                write(tmp_path / f"{name}{umask}")
        finally:
            os.umask(before)
        modes = {(tmp_path / f"{name}{umask}").stat().st_mode & 0o777 for name in writers}
        assert modes == {mode}
    assert open_below(tmp_path) == []


def test_what_cannot_be_written_leaves_nothing_behind_it(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old")

    def fails(file: Any) -> None:
        file.write(b"half")
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        write_whole(tmp_path / "a.txt", fails)
    assert os.listdir(tmp_path) == ["a.txt"] and (tmp_path / "a.txt").read_text() == "old"
