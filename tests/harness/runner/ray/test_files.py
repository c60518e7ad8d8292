"""What a run reads is brought to a node that lacks it; Ray, which carries it, is a stand-in."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.provenance.data import data_fingerprint
from tests.harness.runner.ray.test_task import Remote

pytest.importorskip("ray", reason="Ray is not installed: pip install -e '.[ray]'")

from harness.runner.ray import files
from harness.runner.ray.files import FileServer, Freight


@pytest.fixture(autouse=True)
def _no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "ray", SimpleNamespace(get=lambda value: value))
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))


def test_what_the_results_folder_keeps_lies_in_the_nodes_own(tmp_path: Path) -> None:
    Freight(kept={"code/a.zip": b"zipped", "environments/b.json": b"{}"}).unload_kept(tmp_path)
    assert (tmp_path / "code/a.zip").read_bytes() == b"zipped"
    assert (tmp_path / "environments/b.json").read_bytes() == b"{}"


def test_data_that_is_other_here_is_brought_once_and_what_is_the_same_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PIECE", 3)
    data, empty, same = (tmp_path / name for name in ("data", "empty", "same"))
    for folder in (data / "deep", empty, same):
        folder.mkdir(parents=True)
    (data / "a.bin").write_bytes(b"tokens")
    (data / "deep/b.bin").write_bytes(b"more tokens")
    known = {str(data): "there", str(empty): "nothing", str(same): data_fingerprint([same])}
    freight = Freight(data=known, server=Remote(FileServer(known)))
    moved = freight.moved()
    assert set(moved) == {str(data), str(empty)}
    brought = Path(moved[str(data)])
    assert (brought / "a.bin").read_bytes() == b"tokens"
    assert (brought / "deep/b.bin").read_bytes() == b"more tokens"
    assert list(Path(moved[str(empty)]).iterdir()) == []
    (data / "a.bin").unlink()
    assert freight.moved() == moved  # nothing is asked for again
