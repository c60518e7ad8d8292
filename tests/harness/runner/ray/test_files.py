"""What a run reads is brought to a node that lacks it; Ray, which carries it, is a stand-in."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import UserError
from harness.provenance.data import data_fingerprint
from tests.harness.runner.ray.test_task import Remote
from tests.one_run import SPEC

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


def test_data_that_changes_while_it_is_sent_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.bin").write_bytes(b"tokens")
    server = FileServer([str(data)])
    digests = server.digests(str(data))
    server.digests = lambda path: digests
    (data / "a.bin").write_bytes(b"others")
    freight = Freight(data={str(data): "there"}, server=Remote(server))
    with pytest.raises(UserError, match=r"data/a\.bin: it changed while it was sent: run the same"):
        freight.moved()


def test_a_node_without_room_for_data_says_what_to_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way of a folder")
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "file"))
    freight = Freight(data={str(tmp_path / "data"): "there"}, server=Remote(FileServer([])))
    with pytest.raises(UserError, match=r"make room there, or name another folder in ABLATE_CACHE"):
        freight.moved()


def test_what_is_kept_is_sent_once_and_data_is_read_where_the_call_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/a.zip").write_bytes(b"zipped")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.bin").write_bytes(b"tokens")
    put: list[bytes] = []
    killed: list[Any] = []
    options: list[dict[str, Any]] = []

    def server(paths: tuple[str, ...]) -> str:
        return f"serves {len(paths)}"

    def optioned(**how: Any) -> Any:
        options.append(how)
        return SimpleNamespace(remote=server)

    def kept(content: bytes) -> str:
        put.append(content)
        return "a reference"

    context = SimpleNamespace(get_node_id=lambda: "ab" * 28)
    fake = SimpleNamespace(
        get_runtime_context=lambda: context,
        put=kept,
        remote=lambda kind: SimpleNamespace(options=optioned),
        kill=killed.append,
    )
    monkeypatch.setattr(files, "ray", fake)
    data = str(tmp_path / "data")
    trainer: Any = SimpleNamespace(data=lambda spec: [data], kept=lambda spec: ["code/a.zip"])
    carrier = files.Carrier(tmp_path, trainer, [SPEC, SPEC])
    for _ in range(2):
        freight = carrier.freight(SPEC)
        assert freight.kept == {"code/a.zip": "a reference"}
        assert freight.data == {data: data_fingerprint([Path(data)])}
        assert freight.server == "serves 1"
    assert put == [b"zipped"]
    assert [how["num_cpus"] for how in options] == [0]
    place = options[0]["scheduling_strategy"]
    assert (place.node_id, place.soft) == ("ab" * 28, False)
    carrier.close()
    assert killed == ["serves 1"]
    trainer.data = lambda spec: []
    bare = files.Carrier(tmp_path, trainer, [SPEC])
    bare.close()
    assert bare.freight(SPEC).server is None and killed == ["serves 1"]
