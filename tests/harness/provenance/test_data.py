"""When data that a script reads are the same elsewhere."""

from pathlib import Path

import pytest

from harness.provenance.data import data_fingerprint, files_under


@pytest.mark.parametrize(("size", "is_read"), [(5, True), (1 << 20, True), ((1 << 20) + 1, False)])
def test_of_a_file_of_more_than_a_mebibyte_the_size_alone_is_looked_at(
    tmp_path: Path, size: int, is_read: bool
) -> None:
    prints = []
    for content in (b"a" * size, b"a" * (size - 1) + b"b", b"a" * (size + 1)):
        (tmp_path / "data").write_bytes(content)
        prints.append(data_fingerprint([tmp_path]))
    first, other, longer = prints
    assert (other != first) == is_read
    assert longer != first
    assert {len(name) for name in prints} == {64}


def test_names_of_files_are_looked_at_and_a_place_without_any_has_none(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name in ("b/c", "a"):
        (tmp_path / name).write_bytes(b"x")
    assert files_under(tmp_path) == [tmp_path / "a", tmp_path / "b/c"]
    assert files_under(tmp_path / "a") == [tmp_path / "a"]
    assert files_under(tmp_path / "gone") == []
    before = data_fingerprint([tmp_path])
    assert data_fingerprint([tmp_path, tmp_path / "gone"]) == before
    (tmp_path / "a").rename(tmp_path / "d")
    assert data_fingerprint([tmp_path]) != before
