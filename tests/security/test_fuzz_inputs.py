"""Whatever a log, an archive, an experiment's file or a shard holds, the command that is given it ends with 0, 1 or 2, soon and in few lines."""

import bz2
import gzip
import io
import lzma
import resource
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.corpora.text import prepare_text
from harness.foreign import log_text
from harness.run.code import CODE_LIMIT, code_digest
from tests.foreign_bench import CPU, ablate, bench
from tests.foreign_logs import ERAS
from tests.fuzzing import changed, damaged, said_by
from tests.report_arms import LADDER
from tests.report_fixtures import write_experiment
from tests.sealing import seal_again

MOST_S, MOST_MIB, MOST_LINES = 10.0, 1500, 3  # of one command; of the process, more than before
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}
NUMBERS = (
    *("nan", "inf", "-0", "1e308", "-1", "0x1f", "9" * 400, "1.5.2", "", "1_0", "١٢", "2.0\r3.0"),
    *("\x1b[2J", "[rank1]: ", "step:0/1 val_loss:2.0", "s:5 tel:1.0000", "=" * 100, "x" * 9000),
)
PLUGIN = "GAIN = 2\n"
EXPERIMENT = """
name: fuzz
question: Does it matter?
base: r07
scale: tiny
set: {model.n_layer: 2, schedule.steps: 20, data.micro_tokens: 512, data.batch_tokens: 512, data.ranks: 1}
changes: {untied_head: r08.untied_head, zero_head: r08.zero_head}
target: {val_loss: 3.0, reason: what the baseline reaches}
margin: 0.01
primary: val_loss
"""
OF_KIND = {
    "rule": "seeds: {min: 3, max: 6, stop: {decide: 0.05}}\nbudgets: [10, x1]",
    "noise": "seeds: 3\nprior_noise: {sd: 0.02, df: 4, source: x}\nslope: {per_step: 0.1, se: 0.01, source: y}",
    "chain": "design: chain\nseeds: [3, 4]\n"
    "arms: {a: [untied_head], b: [untied_head, zero_head]}\nparents: {b: baseline}",
    "grid": "axes: {optim.muon_lr: [x0.5, x1]}\nphases: {loss: {gpus_per_run: 1}}",
    "branch": "branch_at: x0.5\nchanges: {floor: {schedule.lr_floor: 0.3}}",
}


def test_a_small_packed_log_that_holds_a_great_deal_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(log_text, "MOST_UNPACKED", 1 << 20)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "sound.txt.gz").write_bytes(gzip.compress(ERAS["year_2025"](3.3).encode()))
    for ending, pack in PACKED.items():
        if ending:
            (tmp_path / "logs" / f"bomb{ending}").write_bytes(
                pack((b"step" * 256 + b"\n") * (1 << 10))
            )
    at = ("--results", tmp_path / "results")
    assert ablate("import", tmp_path / "logs", "--experiment", "x", *at) == 1
    out = capsys.readouterr().out
    assert out.count("it is compressed, and holds more than 256 MiB: unpack it first") == 3
    assert "sound.txt.gz: refused" not in out


def test_the_archive_of_a_plug_in_may_be_anything(ours: Path, tmp_path: Path) -> None:
    """Its source is on the page where it can be read; nothing else is opened, nothing is unpacked without bounds."""
    kept = ours / "code" / f"{'c1' * 8}.zip"

    def page() -> str:
        path = tmp_path / "page.html"
        assert check("report", "split", "-o", path, "--results", ours) == 0
        return path.read_text()

    def write(path: Path, n_mib: int, more: str = "") -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as made:
            made.writestr("plugin/a.py", PLUGIN + more)
            with made.open("more.py", "w") as file:
                for _ in range(n_mib):
                    file.write(bytes(1 << 20))

    write(kept, 1)
    assert "GAIN = 2" in page()
    sound = kept.read_bytes()
    write(kept, 257)
    assert "GAIN = 2" not in page()
    write(kept, 1, "#" * CODE_LIMIT)  # no more is parsed
    assert "GAIN = 2" not in page()
    kept.write_bytes(sound.replace(b"\x08\0", b"\x63\0"))  # a way to pack that nobody has
    assert "GAIN = 2" not in page()
    (tmp_path / "elsewhere.zip").write_bytes(sound)
    kept.unlink()
    kept.symlink_to(tmp_path / "elsewhere.zip")
    assert "GAIN = 2" not in page()
    kept.unlink()


def fuzz(n: int) -> Callable[..., object]:
    """So many examples, the same in every session."""
    same = settings(
        max_examples=n,
        database=None,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    return lambda test: same(given(data=st.data())(test))


def check(*words: object) -> object:
    """A command ends by itself, within its bounds, and says what is wrong in a line; its exit code."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    code, err, seconds = said_by(words)
    told = f"{words}: {code} {err[:600]}"
    assert code in (0, 1, 2), told
    assert "a fault of its own" not in err and "Traceback" not in err, told
    assert code != 2 or 0 < err.strip().count("\n") + 1 <= MOST_LINES, told
    assert seconds < MOST_S, told
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_MIB << 10, told
    return code


def fuzzed_log(text: str, data: st.DataObject) -> bytes:
    """Another log: lines left out, doubled, moved; numbers that are none; bytes."""
    lines = text.splitlines(keepends=True)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(lines) - 1))
        way = data.draw(st.sampled_from(("out", "twice", "end", "word", "word", "whole")))
        if way == "out" and len(lines) > 1:
            del lines[at]
        elif way in ("twice", "end"):
            lines.insert(len(lines) if way == "end" else at, lines[at])
        elif way == "whole":
            lines = lines * 2
        elif way == "word":
            words = lines[at].split(":")
            words[data.draw(st.integers(0, len(words) - 1))] = data.draw(st.sampled_from(NUMBERS))
            lines[at] = ":".join(words)
    content = "".join(lines).encode()
    return content if data.draw(st.booleans()) else damaged(content, data)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@fuzz(60)
def test_no_log_is_a_fault(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("logs")
    era = data.draw(st.sampled_from(sorted(ERAS)))
    pack = data.draw(st.sampled_from(sorted(PACKED)))
    (folder / "sound").mkdir()
    (folder / "sound" / "a.txt").write_text(ERAS[era](3.3))
    content = PACKED[pack](fuzzed_log(ERAS[era](3.28), data))
    if pack and data.draw(st.booleans()):
        content = damaged(content, data)
    (folder / "tried").mkdir()
    (folder / "tried" / f"b.txt{pack}").write_bytes(content)
    at = ("--results", folder / "results")
    assert check("import", folder / "sound", folder / "tried", "--experiment", "x", *at) in (0, 1)
    assert check("compare", "x", *at) in (0, 1)
    page = data.draw(st.sampled_from(("report", "chain", None)))
    if page is not None:
        check(page, "x", "-o", folder / f"{page}.html", *at)
    shutil.rmtree(folder)


def archive(data: st.DataObject) -> bytes:
    """An archive of code: names, sizes and bytes that none has."""
    file = io.BytesIO()
    ways = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    names = ("a.py", "../up", "/etc/x", "a//b", "", "x" * 3000, "a.py/b", "\x1b[2J", "-rf", "a\\b")
    with zipfile.ZipFile(file, "w", data.draw(st.sampled_from(ways))) as made:
        for _ in range(data.draw(st.integers(0, 4))):
            entry = zipfile.ZipInfo(data.draw(st.sampled_from(names)))
            entry.external_attr = data.draw(st.sampled_from((0, 0o120777 << 16, 0o010644 << 16)))
            made.writestr(entry, data.draw(st.binary(max_size=60)) * data.draw(st.integers(0, 99)))
    content = bytearray(file.getvalue())
    for _ in range(data.draw(st.integers(0, 3))):  # sizes and offsets stand in the directory
        at = data.draw(st.integers(0, max(0, len(content) - 4)))
        number = data.draw(st.sampled_from((0, 1, 2**16, 2**31, 2**32 - 1)))
        content[at : at + 4] = struct.pack("<I", number)
    return bytes(content) if data.draw(st.booleans()) else damaged(bytes(content), data)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@fuzz(40)
def test_no_archive_is_a_fault(ours: Path, theirs: Path, data: st.DataObject) -> None:
    content = archive(data)
    (ours / "code" / f"{'c1' * 8}.zip").write_bytes(content)
    check("compare", "split", "--results", ours)
    check("submission", "split", "--arm", LADDER[1].name, "-o", ours / "new", "--results", ours)
    shutil.rmtree(ours / "new", ignore_errors=True)
    for kept in (theirs / "code").glob("*.zip"):
        kept.write_bytes(content)
    run = next((theirs / "runs").iterdir()).name
    check("merge", theirs, "--results", theirs.parent / "merged")
    shutil.rmtree(theirs.parent / "merged", ignore_errors=True)
    check("rerun", run, "--results", theirs)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs with a plug-in, whose source a page shows."""
    root = tmp_path_factory.mktemp("plugged") / "results"
    write_experiment(root, arms=LADDER[:2], n_seeds=2, n_points=3)
    for path in root.glob("runs/*/config.yaml"):
        config = yaml.safe_load(path.read_text())
        config["source"]["files"] = {"plugin/a.py": code_digest(PLUGIN)}
        path.write_text(yaml.safe_dump(config))
        seal_again(path.parent)
    (root / "code").mkdir(exist_ok=True)
    return root


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of foreign scripts, with their kept code."""
    folder = tmp_path_factory.mktemp("foreign")
    with pytest.MonkeyPatch.context() as patch:
        bench(folder, patch)
        assert ablate("ab", "old.py", "new.py", "-n", 1, *CPU, "--experiment", "x") == 0
    return folder / "results"


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@fuzz(60)
def test_no_experiment_file_is_a_fault(
    ours: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """`status` meets runs: the folder holds those of another experiment."""
    folder = tmp_path_factory.mktemp("experiments")
    file, at = folder / "fuzz.yaml", ("--results", ours)
    kind = data.draw(st.sampled_from(sorted(OF_KIND)))
    content = {**yaml.safe_load(EXPERIMENT), **yaml.safe_load(OF_KIND[kind])}
    file.write_text(yaml.safe_dump(content))
    assert check("plan", file, *at) == 0, kind
    for _ in range(data.draw(st.integers(1, 2))):
        content = changed(content, data)
        if not isinstance(content, dict):
            break
    text = yaml.safe_dump(content).encode()
    file.write_bytes(text if data.draw(st.integers(0, 3)) else damaged(text, data))
    check("plan", file, *at)
    check("status", file, *at)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("corpora")
    (root / "text.txt").write_text("".join(f"Line {i} of a text.\n" for i in range(900)))
    prepare_text([root / "text.txt"], name="mine", root=root, documents="line")
    return root / "mine"


@pytest.mark.slow
@pytest.mark.long
@fuzz(60)
def test_no_shard_is_a_fault(corpus: Path, data: st.DataObject) -> None:
    """A header's numbers, its length, and what follows; its description too."""
    root = corpus.parent / "tried"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(corpus, root / "mine")
    files = sorted(path for path in (root / "mine").iterdir() if path.is_file())
    path = data.draw(st.sampled_from(files))
    content = bytearray(path.read_bytes())
    if path.suffix == ".bin":
        for _ in range(data.draw(st.integers(1, 3))):
            number = data.draw(st.sampled_from((0, 1, -1, 2, 20240520, 2**31 - 1, -(2**31))))
            struct.pack_into("<i", content, 4 * data.draw(st.integers(0, 4)), number)
    path.write_bytes(content if data.draw(st.integers(0, 2)) else damaged(bytes(content), data))
    check("data", "check", path)
    check("data", "check", root / "mine")
    check("data", "list", "--data", root)
    check("plan", "minute", "--set", "data.corpus=mine", "--results", root / "results")
