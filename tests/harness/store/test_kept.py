"""The files that a run names by their digests: code of ours and of scripts, a diff, an environment; what is not what its name says is none."""

import hashlib
import io
import json
import zipfile
from pathlib import Path

from harness.provenance.code import Code
from harness.run.digests import short_digest
from harness.store.kept import Kept, kept_of


def zipped(files: dict[str, bytes]) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return raw.getvalue()


def put(root: Path, kept: Kept, content: bytes) -> None:
    kept.path(root).parent.mkdir(parents=True, exist_ok=True)
    kept.path(root).write_bytes(content)


def test_the_code_of_a_script_is_named_by_its_files_and_which_of_them_is_started(
    tmp_path: Path,
) -> None:
    files = {"train.py": b"import near\n", "near.py": b"x = 1\n"}
    digest = Code(script="train.py", files=files).source.digest

    def kept(script: str | None) -> Kept:
        return Kept(kind="code", digest=digest, suffix=".zip", script=script)

    content = zipped(files)
    put(tmp_path, kept("train.py"), content)
    assert kept("train.py").read(tmp_path) == content
    assert kept(None).read(tmp_path) is None, "code of ours is named otherwise"
    put(tmp_path, kept("train.py"), zipped({**files, "near.py": b"x = 2\n"}))
    assert kept("train.py").read(tmp_path) is None
    assert kept("train.py").wrong(tmp_path).endswith(f"{digest}.zip is not what its name says")


def test_a_diff_is_named_by_its_bytes_and_an_environment_by_what_it_says(tmp_path: Path) -> None:
    diff = b"--- a\n+++ b\n"
    versions = {"torch": "2.9", "numpy": "2.1"}
    for suffix, digest, content in (
        (".diff", hashlib.sha256(diff).hexdigest(), diff),
        (".json", short_digest(versions), json.dumps(versions, indent=3).encode()),
    ):
        kept = Kept(kind="code", digest=digest, suffix=suffix, script=None)
        assert kept.read(tmp_path) is None, "it is not there"
        put(tmp_path, kept, content)
        assert kept.read(tmp_path) == content
        put(tmp_path, kept, content[:-3] + b"x}")
        assert kept.read(tmp_path) is None


def test_a_run_names_its_code_its_diff_and_its_environment(tmp_path: Path) -> None:
    def named(config: str, environment: dict[str, object]) -> list[tuple[str, str, str | None]]:
        (tmp_path / "config.yaml").write_text(config)
        (tmp_path / "environment.json").write_text(json.dumps(environment))
        return [(k.kind, f"{k.digest}{k.suffix}", k.script) for k in kept_of(tmp_path)]

    config = (
        "config: {trainer: {script: t.py}}\nsource: {digest: abc}\nenvironment: {digest: def}\n"
    )
    assert named(config, {"git": {"diff_sha256": "123"}}) == [
        ("code", "abc.zip", "t.py"),
        ("code", "123.diff", "t.py"),
        ("environments", "def.json", "t.py"),
    ]
    ours = "config: {model: {n: 1}}\nsource: {digest: abc}\nenvironment: null\n"
    assert named(ours, {"git": None}) == [("code", "abc.zip", None)]
    assert named("source: {digest: ../x}\n", {"git": {"diff_sha256": 7}}) == []
