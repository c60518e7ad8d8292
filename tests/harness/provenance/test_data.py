"""When data that a script reads are the same elsewhere."""

from pathlib import Path

import pytest

from harness.provenance.data import data_fingerprint


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
