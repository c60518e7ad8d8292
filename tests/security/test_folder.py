"""Nothing in a results folder leads out of it, never ends, or takes more than its share."""

import errno
import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.run.guarded import (
    IN_ROOT,
    MIB,
    MOST,
    RefusedFileError,
    chunks_of,
    entries_in,
    is_file,
    is_name,
    read_bytes,
    remove,
)
from harness.run.parse import parse_json, parse_yaml
from harness.run.results import result_text, sealed
from harness.store.clean import KINDS
from harness.store.errors import ResultsError
from harness.store.merge import merge
from harness.store.store import Store
from harness.yamlfile import parse_value
from tests.foreign_bench import CPU, ablate, bench
from tests.hostile import bounded
from tests.sealing import write_plan

NAME = "ab-old-new"
READ = (
    ("status", NAME),
    ("status",),
    ("compare", NAME),
    ("report", NAME),
    ("export", NAME, "-o", "table.csv"),
    ("log", "RUN"),
    ("clean",),
)
SECRET = "PRIVATE KEY OF THE ONE WHO LOOKS"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder of two runs."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        bench(folder, patch)
        assert ablate("ab", "old.py", "new.py", "-n", 2, *CPU) == 0
    return folder / "results"


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    """A place with a copy of the results folder, and with what is not part of it."""
    shutil.copytree(made, tmp_path / "results")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "key").write_text(SECRET)
    (tmp_path / "outside" / "runs").mkdir()
    return tmp_path


def run_in(place: Path) -> Path:
    return sorted((place / "results" / "runs").iterdir())[0]


NAMES = {"chain": "chain.html", "report": "page.html", "export": "table.csv"}


@pytest.mark.parametrize("command", NAMES)
def test_no_page_is_written_through_a_link_in_a_results_folder(
    place: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Neither a link where the page would lie, nor a linked folder, takes what a user asks for."""
    monkeypatch.chdir(place)
    as_imported(place)
    folder, key = place / "results" / "experiments" / NAME, place / "outside" / "key"
    out = folder / NAMES[command]
    out.symlink_to(key)
    assert ablate(command, NAME, "-o", out) == 0
    assert key.read_text() == SECRET
    assert not out.is_symlink()
    assert out.stat().st_size > len(SECRET)
    before = content_of(place / "outside")
    (folder / "linked").symlink_to(place / "outside")
    (folder / "loose").symlink_to(place / "outside" / "none")
    (place / "ours").symlink_to("results")
    below = Path("experiments") / NAME
    for into in ("results" / below / "linked", "ours" / below / "linked" / "new"):
        assert ablate(command, NAME, "-o", into / out.name) == 2
    assert ablate(command, NAME, "-o", "results" / below / "loose" / out.name) == 2
    assert content_of(place / "outside") == before
    assert not (place / "outside" / "new").exists()


def as_imported(place: Path) -> None:
    """The experiment as if its runs had been logs: what a chain is for."""
    path = place / "results" / "experiments" / NAME / "experiment.json"
    write_plan(path, json.loads(path.read_text()) | {"imported": True})


@pytest.mark.parametrize("command", NAMES)
def test_a_page_is_written_through_the_users_own_links(
    place: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(place)
    as_imported(place)
    (place / "home").symlink_to("outside")
    (place / "ours").symlink_to("results")
    name = NAMES[command]
    for results, out in (
        ("results", f"home/new/{name}"),
        ("ours", f"ours/experiments/{NAME}/new/{name}"),
        (place / "ours", f"results/{name}"),
    ):
        assert ablate(command, NAME, "--results", results, "-o", out) == 0
        assert Path(out).stat().st_size > 100
        Path(out).unlink()


def content_of(folder: Path) -> dict[str, str]:
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return {str(p.relative_to(folder)): p.read_text() for p in files}


HERE = ("--results", "results")
MERGE = ("merge", "results", "--results", "ours")


def reading(place: Path) -> list[tuple[str, ...]]:
    """The commands that read, of this folder."""
    run = run_in(place).name
    return [(*(run if word == "RUN" else word for word in command), *HERE) for command in READ]


def everything(place: Path) -> str:
    """What all commands that read say, and bring elsewhere."""
    said = "".join(ran.out + ran.err for ran in bounded(*reading(place), MERGE, cwd=place))
    for path in (place / "ours").rglob("*"):
        if path.is_file():
            said += path.read_bytes().decode("utf-8", "replace")
    return said


def as_link(path: Path, place: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(place / "outside" / "key")


def as_device(path: Path, place: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def as_pipe(path: Path, place: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def as_folder(path: Path, place: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def as_vast(path: Path, place: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


BROKEN = (  # files of four runs
    ("log.txt", "config.yaml"),
    ("metrics.jsonl",),
    ("result.json", "environment.json", "attempts.jsonl"),
    ("extra",),
)


@pytest.mark.parametrize("harm", [as_link, as_device, as_pipe, as_folder, as_vast])
def test_no_file_of_a_run_leads_elsewhere_or_never_ends(
    place: Path, harm: Callable[[Path, Path], None]
) -> None:
    runs = sorted((place / "results" / "runs").iterdir())
    for run, names in zip(runs, BROKEN, strict=True):  # each file is opened by a command
        for name in names:
            harm(run / name, place)
    for kept in (place / "results" / "code").iterdir():
        harm(kept, place)
    before = content_of(place / "outside")
    assert SECRET not in everything(place)
    assert content_of(place / "outside") == before
    ours = sorted((place / "ours" / "runs").iterdir())
    assert not [p for p in (place / "ours").rglob("*") if p.is_symlink() or p.is_fifo()]
    assert [run.name for run in ours] == [runs[3].name]  # the one whose sealed files are sound
    assert not (ours[0] / "extra").exists()  # left out, as `merge` says


def test_a_merge_names_a_folder_that_it_leaves_out(place: Path) -> None:
    plots = run_in(place) / "plots"
    plots.mkdir()
    done = merge(place / "results", Store.create(place / "ours"))
    assert len(done.copied) == 4
    assert done.problems == [f"{plots}: is a folder: left out"]


@pytest.mark.slow
@pytest.mark.parametrize("harm", [as_link, as_device, as_pipe, as_folder, as_vast])
def test_no_plan_leads_elsewhere_or_never_ends(
    place: Path, harm: Callable[[Path, Path], None]
) -> None:
    harm(place / "results" / "experiments" / NAME / "experiment.json", place)
    said = everything(place)
    assert SECRET not in said


def test_clean_empties_no_folder_that_a_link_leads_to(place: Path) -> None:
    results, outside = place / "results", place / "outside"
    for name in ("aside", "cache", "reruns"):
        shutil.rmtree(results / name, ignore_errors=True)
        (results / name).symlink_to(outside)
    run = run_in(place)
    shutil.rmtree(run / "attempts", ignore_errors=True)
    (run / "attempts").symlink_to(outside)
    (results / "runs" / "linked").symlink_to(outside)
    (run / ".stray").symlink_to(outside)
    before = content_of(outside)
    [ran] = bounded(("clean", *HERE), cwd=place)
    assert ran.code == 0
    assert content_of(outside) == before
    assert not (run / ".stray").is_symlink()  # the link itself may go


def test_a_linked_folder_of_runs_is_refused_and_a_linked_results_folder_is_not(
    place: Path,
) -> None:
    (place / "link").symlink_to(place / "results")
    linked = ("--results", "link")
    status, report = bounded(("status", NAME, *linked), ("report", NAME, *linked), cwd=place)
    assert "4 finished" in status.out
    assert report.code == 0
    (place / "results" / "runs").rename(place / "outside" / "more")
    (place / "results" / "runs").symlink_to(place / "outside" / "more")
    for ran in bounded(("status", *HERE), ("status", NAME, *HERE), MERGE, cwd=place):
        assert ran.code == 2
        assert ran.err == "ablate: results/runs: links in a results folder are not followed\n"
    with pytest.raises(ResultsError, match=r"/runs: links in a .* followed: put it there itself"):
        Store.create(place / "results")


def test_no_stale_run_goes_while_an_experiment_cannot_be_read(place: Path) -> None:
    experiments, outside = place / "results" / "experiments", place / "outside"
    run = run_in(place)
    plan = json.loads((experiments / NAME / "experiment.json").read_text())
    for planned in plan["runs"]:
        if planned["run_id"] == run.name:
            planned.update(run_id="0123456789abcdef", older=[run.name])
    (experiments / "later").mkdir()
    write_plan(experiments / "later" / "experiment.json", plan | {"name": "later"})
    (experiments / NAME).rename(outside / NAME)
    (experiments / NAME).symlink_to(outside / NAME)
    stale, store = KINDS[0], Store(place / "results")
    for target in (outside / NAME, outside / "nowhere"):
        (experiments / NAME).unlink()
        (experiments / NAME).symlink_to(target)
        assert list(stale.find(store)) == []
    (experiments / NAME).unlink()
    assert list(stale.find(store)) == [run]


def test_what_cannot_be_looked_at_is_not_taken_for_missing(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, runs = run_in(place), place / "results" / "runs"
    assert entries_in(place / "results" / "nowhere", below=IN_ROOT) == {}
    assert not is_file(runs / "a" / "result.json")
    (runs / "link").symlink_to(run)
    (runs / "note.txt").touch()
    kinds = entries_in(runs, below=IN_ROOT)
    assert (kinds["link"], kinds["note.txt"], kinds[run.name]) == ("other", "file", "folder")

    def refused(path: object, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(PermissionError):
        entries_in(runs, below=IN_ROOT)
    monkeypatch.setattr(os, "lstat", refused)
    with pytest.raises(PermissionError):
        is_file(run / "result.json")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["../../..", "../outside", "/tmp/x", "-rf", "--help", ".hidden", "", "a/b", "a\nb"]
)
def test_names_that_lead_elsewhere_or_are_options_are_refused_in_one_line(
    place: Path, name: str
) -> None:
    path = place / "results" / "experiments" / NAME / "experiment.json"
    plan = json.loads(path.read_text())
    for changed in (
        {**plan, "name": name},
        {**plan, "runs": [{**run, "run_id": name} for run in plan["runs"]]},
        {**plan, "runs": [{**run, "older": [name]} for run in plan["runs"]]},
    ):
        path.write_text(json.dumps(changed))
        before = {p for p in place.rglob("*") if "results" not in p.parts}
        commands = [("status", NAME), ("report", NAME), ("export", NAME, "-o", "x.csv")]
        *read, merged = bounded(*((*command, *HERE) for command in commands), MERGE, cwd=place)
        assert [(ran.code, ran.err.count("\n")) for ran in read] == [(2, 1)] * 3
        assert merged.code == 1
        assert f"{path.relative_to(place)}: " in merged.out
        shutil.rmtree(place / "ours")
        assert {p for p in place.rglob("*") if "results" not in p.parts} == before


def test_folders_of_such_names_are_passed_over(place: Path) -> None:
    for name in ("-rf", "--help", "a b", "x\x1b[2J"):
        shutil.copytree(run_in(place), place / "results" / "runs" / name)
        shutil.copytree(
            place / "results" / "experiments" / NAME, place / "results" / "experiments" / name
        )
    said = everything(place)
    assert "\x1b[2J" not in said
    assert "4 finished" in said


# ---------------------------------------------------------------- bombs

DEEP = 50_000
BOMBS = {
    "deep lists": "[" * DEEP + "]" * DEEP,
    "deep mappings": '{"a":' * DEEP + "1" + "}" * DEEP,
    "lists that never close": "[" * DEEP,
    "dashes": "- " * DEEP + "x",
    "aliases of aliases": "a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)),
    "merges of merges": "a0: &a0 {x: 1}\n"
    + "".join(
        f"a{i}: &a{i} {{<<: [{','.join([f'*a{i - 1}'] * 9)}], y{i}: 1}}\n" for i in range(1, 12)
    ),
    "an alias of itself": "&a [*a, *a]",
    "a million digits": '{"schema": 1, "seed": ' + "9" * 1_000_000 + "}",
    "a word": "null",
    "no text": "\x00\xff",
}


@pytest.mark.slow
@pytest.mark.parametrize("bomb", BOMBS)
@pytest.mark.parametrize("name", ["config.yaml", "result.json", "metrics.jsonl", "experiment.json"])
def test_a_bomb_is_one_line_and_the_rest_goes_on(place: Path, bomb: str, name: str) -> None:
    target = run_in(place) / name
    if name == "experiment.json":
        target = place / "results" / "experiments" / NAME / name
    target.write_text(BOMBS[bomb])
    commands = [("status", NAME), ("report", NAME), ("log", run_in(place).name)]
    for ran in bounded(*((*command, *HERE) for command in commands), MERGE, cwd=place):
        assert ran.err.count("\n") <= 1
        assert len(ran.err) < 1000
    n_brought = 4 if name == "experiment.json" else 3
    assert len(list((place / "ours" / "runs").iterdir())) == n_brought


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_a_bomb_is_no_value(text: str) -> None:
    for parse in (parse_json, parse_yaml):
        try:
            value = parse(text)
        except ValueError:
            continue
        assert value is None or isinstance(value, str)


def test_what_is_deep_enough_for_everybody_is_read() -> None:
    value = json.loads("[" * 60 + '{"a [[[[": "]]]\\"]"}' + "]" * 60)
    assert parse_json(json.dumps(value)) == value
    many = [{"a": [1, 2, {"b": "[" * 100}]}] * 1000
    assert parse_json(json.dumps(many)) == many
    assert parse_yaml("a: &x [1, 2]\nb: *x\n") == {"a": [1, 2], "b": [1, 2]}


def test_a_zip_bomb_is_not_unpacked(place: Path) -> None:
    bomb = place / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        for i in range(4):
            with archive.open(f"{i}.py", "w") as file:
                for _ in range(100):
                    file.write(b"\0" * MIB)
    assert bomb.stat().st_size < MIB
    for kept in (place / "results" / "code").glob("*.zip"):
        kept.write_bytes(bomb.read_bytes())
    [ran] = bounded(MERGE, cwd=place, mib=1000)
    assert ran.code == 1
    assert ran.out.count("is not what its name says") == 2
    assert len(list((place / "ours" / "runs").iterdir())) == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    "changed",
    [
        {"val_loss": []},
        {"val_loss": 1e308},
        {"val_loss": "3"},
        {"val_loss": True},
        {"steps": 10**400},
        {"wall": [1]},
        {"wall": {"train_s": "x"}},
        {"attempt": "abc"},
        {"disturbed": 7},
        {"digests": {"metrics.jsonl": 5}},
        {"bytes": None},
        {"reason": ["\x1b[2J"]},
        {"status": "\x1b[31mfinished"},
    ],
    ids=str,
)
def test_a_result_of_other_types_is_one_line_at_most(place: Path, changed: dict) -> None:
    path = run_in(place) / "result.json"
    content = {**json.loads(path.read_text()), **changed}
    try:
        path.write_text(result_text(sealed(content)))
    except ValueError:
        path.write_text(json.dumps(content))
    for ran in bounded(*reading(place), cwd=place):
        assert ran.err.count("\n") <= 1
        assert "\x1b" not in ran.out + ran.err


@pytest.mark.slow
@pytest.mark.parametrize("pid", ["abc", [], None, 10**30, -5, 1.5])
def test_an_owner_that_is_none_holds_nothing(place: Path, pid: object) -> None:
    run = run_in(place)
    (run / "result.json").unlink()
    (run / "attempts" / "1").mkdir(parents=True)
    (run / "attempts" / "1" / "owner.json").write_text(json.dumps({"machine": "x", "pid": pid}))
    (run / "attempts" / "1" / "progress.json").write_text('{"step": [], "steps": {}}')
    ran, told = bounded(("status", NAME, "--json", *HERE), ("status", NAME, *HERE), cwd=place)
    assert (ran.code, ran.err, told.code, told.err) == (0, "", 0, "")
    states = {row["run"]: row["status"] for row in json.loads(ran.out)}
    assert states[run.name] != "running"
    [line] = [line for line in told.out.splitlines() if run.name in line]
    assert states[run.name] in line.split()
    assert "running" not in told.out


def test_a_terminal_is_commanded_by_nobodys_log(place: Path) -> None:
    escape = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"
    run = run_in(place)
    (run / "log.txt").write_text(f"before {escape} after\n")
    with (run / "attempts.jsonl").open("a") as file:
        file.write(
            json.dumps({"attempt": 1, "ended": "now", "status": "failed", "reason": escape}) + "\n"
        )
    said = everything(place)
    [shown] = bounded(("log", run.name, *HERE), cwd=place)
    assert not set("\x1b\x07\x9b\u202e") & set(shown.out)
    assert "before \\x1b]0;owned\\x07" in said


@pytest.mark.slow
def test_a_log_of_any_size_is_shown_by_its_ends(place: Path) -> None:
    run = run_in(place)
    with (run / "log.txt").open("wb") as file:
        file.write(b"the beginning\n")
        file.truncate(900 * MIB)
        file.seek(0, os.SEEK_END)
        file.write(b"\nthe end\n")
    [ran] = bounded(("log", run.name, *HERE), cwd=place, mib=2000)
    assert ran.code == 0
    assert "the beginning" in ran.out
    assert ran.out.endswith("the end\n")
    assert "bytes are left out here" in ran.out


# ---------------------------------------------------------------- the pieces


def test_only_what_lies_below_may_be_no_link(tmp_path: Path) -> None:
    (tmp_path / "real" / "runs" / "a").mkdir(parents=True)
    (tmp_path / "real" / "runs" / "a" / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert read_bytes(tmp_path / "link" / "runs" / "a" / "file") == b"x"
    (tmp_path / "real" / "runs" / "b").symlink_to(tmp_path / "real" / "runs" / "a")
    with pytest.raises(RefusedFileError, match="links in a results folder are not followed"):
        read_bytes(tmp_path / "real" / "runs" / "b" / "file")
    with pytest.raises(RefusedFileError, match="leads out"):
        read_bytes(f"{tmp_path}/real/runs/../runs/a/file", below=4)
    for last in ("", ".", ".."):
        with pytest.raises(RefusedFileError, match="leads out"):
            read_bytes(f"{tmp_path}/real/runs/a/{last}")
    remove(tmp_path / "real" / "runs" / "b", below=2)
    assert (tmp_path / "real" / "runs" / "a" / "file").exists()


def test_a_file_that_outgrows_its_bound_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MOST, "small", 10)
    path = tmp_path / "small"
    path.write_bytes(b"x" * 10)
    assert read_bytes(path, below=1) == b"x" * 10
    pieces = chunks_of(path, below=1)
    assert next(pieces) == b"x" * 10
    with path.open("ab") as file:
        file.write(b"x")
    with pytest.raises(RefusedFileError, match="is larger than"):
        list(pieces)


def test_a_name_is_no_path_and_no_option() -> None:
    assert all(map(is_name, ("a", "0123456789abcdef", "r08_split.grid", "ab-old-new", "_x")))
    bad = ("", ".", "..", "a/b", "-x", "--help", ".hidden", "a b", "a\n", "é", "a" * 300, None, 3)
    assert not any(map(is_name, bad))


def test_a_time_is_a_word_as_in_yaml_today() -> None:
    assert [parse_value(t) for t in ("1:30", "90", "1e3", "1_000", "0x10")] == [
        "1:30",
        90,
        1000.0,
        1000,
        16,
    ]
