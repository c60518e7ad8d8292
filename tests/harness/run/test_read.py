"""Files of a results folder as they are read: whatever is none of them is refused in words, or left out, and nothing is guessed."""

import errno
import io
import json
import os
import socket
import stat
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.run import guarded, parse
from harness.run.archive import check_size, unpacked
from harness.run.attempts import AttemptRow, by_attempt
from harness.run.digests import short_digest
from harness.run.environment import read_environment
from harness.run.guarded import (
    RefusedFileError,
    ends_of,
    experiments_in,
    is_name,
    open_file,
    open_to_append,
    remove,
)
from harness.run.identity import wrong_identity
from harness.run.parse import parse_json, parse_yaml
from harness.run.plan import Lock, Plan
from harness.run.plan_file import lock_text, wrong_lock
from harness.run.read import parse_config, read_config
from harness.run.readings import OwnMetric
from harness.run.results import Result, read_known, read_result, result_text, sealed
from harness.run.retired import Retired, note_retired, read_retired
from harness.run.versions import NewerError
from harness.store.store import Store
from tests.one_run import SPEC, claimed, finish


def zipped(*names: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in names:
            archive.writestr(name, b"x")
    return content.getvalue()


@pytest.mark.parametrize("name", ["a\\b.py", "a//b.py", "./a.py", "../a.py", "/a.py", "a/"])
def test_an_archive_with_a_name_that_is_no_path_below_it_is_none(name: str) -> None:
    assert [*unpacked(zipped("a.py", "of/b.py"))] == ["a.py", "of/b.py"]
    with pytest.raises(ValueError) as refused:
        unpacked(zipped("a.py", name))
    assert str(refused.value) == f"it holds a file named {name!r}"


def commented(comment: bytes) -> bytes:
    content = io.BytesIO(zipped("a.py"))
    with zipfile.ZipFile(content, "a") as archive:
        archive.comment = comment
    return content.getvalue()


@pytest.mark.parametrize(
    "comment", [b"", b"schema 1", b"schema 0", b"a schema 9", b"schema 9 x", b"schema 9999999999"]
)
def test_an_archive_that_tells_no_later_version_is_read(comment: bytes) -> None:
    assert unpacked(commented(comment)) == {"a.py": b"x"}


def test_an_archive_of_a_later_release_is_refused_and_so_is_none() -> None:
    with pytest.raises(NewerError) as refused:
        unpacked(commented(b"schema 2"))
    said = "format 2 of a later release, this one reads up to 1: read it with that release"
    assert str(refused.value) == f"an archive of code: {said}"
    with pytest.raises(ValueError, match=r"^no archive: "):
        unpacked(b"none")


def test_an_archive_that_would_unpack_to_too_much_is_not_unpacked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("harness.run.archive.MAX_BYTES", 2)
    assert len(unpacked(zipped("a.py", "b.py"))) == 2
    monkeypatch.setattr(zipfile.ZipFile, "read", None)
    with pytest.raises(ValueError, match=r"^3 files of 0 MiB are more than code may have"):
        unpacked(zipped("a.py", "b.py", "c.py"))


def test_an_archive_has_so_many_files_and_bytes_and_no_more() -> None:
    check_size(20_000, 1 << 28)
    rounded = (1 << 28) + (7 << 17)
    for n_files, n_bytes, size in ((20_001, 1, 0), (1, (1 << 28) + 1, 256), (1, rounded, 257)):
        with pytest.raises(ValueError) as refused:
            check_size(n_files, n_bytes)
        most = "more than code may have (20000 files, 256 MiB)"
        assert str(refused.value) == f"{n_files} files of {size} MiB are {most}"


def test_an_attempt_that_began_twice_is_one_with_its_last_beginning_and_end() -> None:
    first = AttemptRow(attempt=1, started="1", host="a", node="n1", pid=7, token="x")
    again = AttemptRow(attempt=1, started="2", host="b", node="n2", pid=8, token="y")
    end = AttemptRow(attempt=1, ended="3", status="failed", reason="why")
    other = replace(first, attempt=2)
    told = replace(again, ended="3", status="failed", reason="why")
    assert by_attempt([first, again, other, end]) == [told, other]
    assert by_attempt([first, end, again]) == [told]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('["host"]', "it holds no mapping"),
        ('{"gpus": ["a", 5]}', "gpus is "),
        ('{"gpus": [{"name": 5}]}', "name is "),
        ('{"host": NaN}', "NaN is no number of JSON"),
    ],
)
def test_an_environment_that_no_run_wrote_is_refused(
    content: str, why: str, tmp_path: Path
) -> None:
    path = tmp_path / "environment.json"
    assert read_environment(path) == {}
    path.write_text('{"host": "h", "gpus": ["a", {"name": "b"}]}')
    assert read_environment(path)["host"] == "h"
    path.write_text(content)
    with pytest.raises(ValueError, match=f"is not what a run writes .*{why}"):
        read_environment(path)


def test_a_configuration_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("- seed\n")
    with pytest.raises(ValueError, match=r"config\.yaml: holds no mapping"):
        read_config(tmp_path)
    with pytest.raises(ValueError, match=r"a config\.yaml holds no mapping"):
        parse_config("- seed\n")


def test_a_run_is_known_by_its_configuration_however_that_is_written(tmp_path: Path) -> None:
    store = Store.create(tmp_path)
    out = claimed(store)
    finish(out)
    path, result = out.run / "config.yaml", read_result(out.run)
    assert result is not None and wrong_identity(out.run, result) is None
    text = path.read_text()
    path.write_text(text.replace("\nseed: 3\n", "\n'seed': 3\n"))
    assert path.read_text() != text and wrong_identity(out.run, result) is None
    path.write_text(text.replace("\nseed: 3\n", "\n'seed': 4\n"))
    other = replace(SPEC, seed=4).run_id
    assert wrong_identity(out.run, result) == f"{path} is the configuration of run {other}"
    path.write_text(text.replace("\nreplicate: 0\n", "\nreplicate: 1\n"))
    other = replace(SPEC, replicate=1).run_id
    assert wrong_identity(out.run, result) == f"{path} is the configuration of run {other}"
    path.write_text("- seed\n")
    why = "a config.yaml holds no mapping"
    said = f"{path} is not the configuration of a run ({why})"
    assert wrong_identity(out.run, result) == said


def test_a_run_of_the_first_format_is_known_by_the_name_that_was_made_then(tmp_path: Path) -> None:
    earlier = set()
    for seed in range(6):
        spec = replace(SPEC, seed=seed)
        (tmp_path / "config.yaml").write_text(spec.to_yaml())
        made_by = {"source": {"digest": "a" * 16}, "environment": {"digest": "b" * 16}}
        first = short_digest({**spec.asked(), **made_by})
        earlier.add(first < spec.run_id)
        for schema, run_id in ((1, first), (1, spec.run_id), (2, spec.run_id)):
            result = Result(run_id=run_id, status="finished", content={"schema": schema})
            assert wrong_identity(tmp_path, result) is None
        later = Result(run_id=first, status="finished", content={"schema": 2})
        said = f"{tmp_path}/config.yaml is the configuration of run {spec.run_id}"
        assert wrong_identity(tmp_path, later) == said
        other = Result(run_id="0" * 16, status="finished", content={"schema": 1})
        said = f"{tmp_path}/config.yaml is the configuration of run {first}"
        assert wrong_identity(tmp_path, other) == said
    assert earlier == {False, True}


def test_a_value_with_an_anchor_counts_as_often_as_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "a: &x 1\nb: &y [*x, 2]\nc: [*x, *y]\n"
    value = {"a": 1, "b": [1, 2], "c": [1, 1, 2]} | {"c": [1, [1, 2]]}
    monkeypatch.setattr(parse, "MOST_NODES", 13)  # 1, and 2, 4 and 6 of its rows
    assert parse_yaml(text) == value
    monkeypatch.setattr(parse, "MOST_NODES", 12)
    with pytest.raises(ValueError, match="more than 12 values with its aliases written out"):
        parse_yaml(text)


def test_a_file_has_two_hundred_thousand_values_with_its_aliases_and_no_more() -> None:
    row = ", ".join("1" * 999)  # a thousand values with the list itself
    text = f"- &x [{row}]\n" + "- *x\n" * 198 + "- [" + ", ".join("1" * 998)
    assert len(parse_yaml(f"{text}]\n")) == 200
    with pytest.raises(ValueError, match=r"^more than 200000 values with its aliases written out$"):
        parse_yaml(f"{text}, 1]\n")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: [1", "not valid YAML: while parsing a flow sequence"),
        ("a: *b", "not valid YAML: an alias of nothing, or of what holds it: 'b'"),
        ("a: " + "9" * 401, "a number of 401 digits"),
        ("[" * 65 + "]" * 65, "more than 64 lists and mappings in each other"),
    ],
)
def test_what_is_no_yaml_is_told_in_a_line(text: str, why: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_yaml(text)
    assert str(refused.value) == why


def test_what_a_file_may_hold_is_read_up_to_its_bounds() -> None:
    deep, mappings = "[" * 64 + "]" * 64, '{"a":' * 63 + "{}" + "}" * 63
    assert parse_yaml(deep) == parse_json(deep) == json.loads(deep)
    assert parse_json(mappings) == json.loads(mappings)
    quoted = json.dumps([["[" * 99, '\\"' + "{" * 99]])
    assert parse_json(quoted) == json.loads(quoted)
    for text in (f"[{deep}]", f'{{"a":{mappings}}}', f"[{deep}"):
        with pytest.raises(ValueError) as refused:
            parse_json(text)
        said = "brackets that do not match, or more than 64 in each other"
        assert str(refused.value) == said
    for number in ("9" * 400, "-" + "9" * 399):
        assert parse_yaml(number) == int(number)
    word = "x" * 401
    assert parse_yaml(f"[{word}, 9 {word}]") == [word, f"9 {word}"]


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}'])
def test_what_is_no_number_of_json_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is no number of JSON"):
        parse_json(text)


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        (OwnMetric(name="a", pattern="a: (.*)"), "no line holds 'a: (.*)'"),
        (OwnMetric(name="a", field="b"), "no line is a JSON object with the field b"),
        (OwnMetric(name="a", file="a.txt"), "it wrote no number alone to a.txt"),
        (OwnMetric(name="a", field="b", file="a.json"), "it wrote no JSON with the field b to a.json"),
    ],
)  # fmt: skip
def test_a_metric_that_was_not_found_says_where_it_was_looked_for(
    metric: OwnMetric, words: str
) -> None:
    assert metric.words == words


def test_a_place_is_read_as_it_was_retired_and_what_is_no_row_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    retired = Retired(at="2026-01-05T08:00:00", place="GPU 1 of a", n_failed=2, reason="ECC")
    note_retired(tmp_path / "x", retired)
    with (tmp_path / "x/retired.jsonl").open("a") as file:
        file.write('{"at": "2026"}\n{"at": 1, "place": 2, "n_failed": "x", "reason": 4}\n')
    note_retired(tmp_path / "x", retired)
    assert read_retired(tmp_path / "x") == [retired, retired]
    assert retired.words == (
        "GPU 1 of a was retired at 2026-01-05T08:00: 2 runs in a row failed there at once and did "
        "well elsewhere (ECC)"
    )


def test_a_result_whose_values_are_of_other_types_is_damaged(tmp_path: Path) -> None:
    store = Store.create(tmp_path)
    out = claimed(store)
    finish(out)
    path = out.run / "result.json"
    content = json.loads(path.read_text())
    good = sealed(content)
    assert read_known(out.run, out.run.name) == (good, None)
    path.write_text(json.dumps({**content, "steps": "ten"}))
    assert read_known(out.run, out.run.name) == (None, f"{path} is damaged")
    path.write_text(result_text(good).replace('"status":"finished"', '"status":"diverged"'))
    _, wrong = read_known(out.run, out.run.name)
    assert wrong == f"{path} is not the file that the run wrote"
    unsealed = {key: value for key, value in content.items() if key != "digest"}
    for schema, says in ((1, None), (2, wrong)):  # the first ones had no seal
        other = {**unsealed, "schema": schema}
        path.write_text(json.dumps(other))
        assert read_known(out.run, out.run.name)[1] == says
        path.write_text(json.dumps({**other, "digest": sealed(other).digest}, indent=4))
        assert read_known(out.run, out.run.name)[1] is None


def test_a_lock_that_says_something_else_than_its_plan_is_told(tmp_path: Path) -> None:
    path = tmp_path / "plan.lock"
    plan = Plan(name="x")
    assert wrong_lock(path, plan) == f"{path} is missing"
    path.write_text(lock_text(plan))
    assert wrong_lock(path, plan) is None
    other = replace(plan, locks=(Lock(locked="2026-01-05T08:00:00", digest="abc", plan={}),))
    said = f"{path} does not say what {tmp_path / 'experiment.json'} says was locked"
    assert wrong_lock(path, other) == said
    path.write_text(lock_text(plan).replace("locks", "lokcs"))
    assert wrong_lock(path, plan) == f"{path} is not the file that was written"
    path.write_text("{")
    assert wrong_lock(path, plan) == f"{path} is damaged"


# ---------------------------------------------------------------- what must not be opened


def test_a_file_that_became_another_one_is_refused_and_left_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("file")
    os.close(open_file(tmp_path / "file"))
    facts = (tmp_path / "file").lstat()
    n_open = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(guarded.os, "lstat", lambda *_, **__: facts)  # it was a file
    with pytest.raises(RefusedFileError) as refused:
        open_file(tmp_path / "folder")
    assert refused.value.errno == errno.EINVAL
    with pytest.raises(RefusedFileError, match="links in a results folder are not followed"):
        open_file(tmp_path / "link")
    assert len(os.listdir("/proc/self/fd")) == n_open


def test_what_is_no_file_is_looked_at_before_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")
        for name in ("pipe", "socket"):
            with pytest.raises(RefusedFileError) as refused:
                open_file(name)
            said = (f"{name}: is no regular file", errno.EINVAL)
            assert (str(refused.value), refused.value.errno) == said


MOST_MIB = {
    **{"result.json": 2, "config.yaml": 2, "environment.json": 8, "owner.json": 1},
    **{"progress.json": 1, "metrics.jsonl": 256, "log.txt": 1024, "checkpoint.pt": 64 * 1024},
    **{"trunk.pt": 512 * 1024, "experiment.json": 64, "attempts.jsonl": 64},
}


@pytest.mark.parametrize("name", MOST_MIB)
def test_a_file_may_be_as_large_as_its_name_says_and_no_larger(name: str, tmp_path: Path) -> None:
    path, most = tmp_path / name, MOST_MIB[name] << 20
    assert guarded.most_bytes(path) == guarded.most_bytes(name) == most
    path.write_bytes(b"ab")
    if most <= 1 << 30:  # what a file system may hold of nothing
        os.truncate(path, most)
        os.close(open_file(path, below=1))
        os.truncate(path, most + 1)
        with pytest.raises(RefusedFileError) as refused:
            open_file(path, below=1)
        said = f"is larger than the {MOST_MIB[name]} MiB that such a file may have"
        assert (str(refused.value), refused.value.errno) == (f"{path}: {said}", errno.EFBIG)


@pytest.mark.parametrize(
    ("size", "ends"),
    [
        (0, (b"", 0, b"")),
        (3, (b"012", 0, b"")),
        (4, (b"012", 0, b"3")),
        (6, (b"012", 0, b"345")),
        (7, (b"012", 1, b"456")),
        (10, (b"012", 4, b"789")),
    ],
)
def test_of_a_long_file_both_ends_are_read_and_what_is_between_is_counted(
    size: int, ends: tuple[bytes, int, bytes], tmp_path: Path
) -> None:
    (tmp_path / "log").write_bytes(b"0123456789"[:size])
    assert ends_of(tmp_path / "log", 3, below=1) == ends


def test_a_name_has_at_most_200_letters_and_begins_with_none_of_an_option() -> None:
    assert is_name("a" * 200) and is_name("_.-") and not is_name("a" * 201)
    assert not any(map(is_name, ("", ".a", "-a", "a/b", "a b", "a\n", None, 7)))


def test_a_pipe_is_no_file_that_grows(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    n_open = len(os.listdir("/proc/self/fd"))
    with pytest.raises(RefusedFileError, match="is no regular file"):
        open_to_append(tmp_path / "pipe")
    assert len(os.listdir("/proc/self/fd")) == n_open
    os.close(reader)
    grown = open_to_append(tmp_path / "file")
    assert stat.S_ISREG(os.fstat(grown).st_mode)
    os.close(grown)


@pytest.mark.parametrize(
    ("below", "path"),
    [
        (guarded.IN_ROOT, "ledger.jsonl"),
        (guarded.KEPT, "cache/sound.json"),
        (guarded.IN_FOLDER, "runs/r1/result.json"),
        (guarded.OF_ATTEMPT, "runs/r1/attempts/1/log.txt"),
    ],
)
def test_a_results_folder_may_be_a_link_and_nothing_in_it_is_followed(
    below: int, path: str, tmp_path: Path
) -> None:
    file, linked = tmp_path / "results" / path, tmp_path / "linked"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("x")
    linked.symlink_to("results")
    assert guarded.read_text(linked / path, below=below) == "x"
    assert guarded.is_file(linked / path, below=below)
    first = tmp_path / "results" / path.split("/")[0]
    first.rename(tmp_path / "elsewhere")
    first.symlink_to("../elsewhere")
    with pytest.raises(RefusedFileError, match="links in a results folder are not followed"):
        guarded.read_text(tmp_path / "results" / path, below=below)


@pytest.mark.parametrize("path", ["runs/../x", "runs//x", "./x", "runs/.", "runs/.."])
def test_a_path_that_leads_out_of_its_folder_is_refused(path: str, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "x").write_text("x")
    with pytest.raises(RefusedFileError) as refused:
        open_file(f"{tmp_path}/{path}", below=path.count("/") + 1)
    assert str(refused.value).endswith(": leads out of the results folder")
    assert str(refused.value).startswith(str(tmp_path)) and refused.value.errno == errno.EINVAL


def test_what_is_gone_may_be_removed_and_only_a_folder_with_a_plan_is_an_experiment(
    tmp_path: Path,
) -> None:
    for name in ("planned", "empty"):
        (tmp_path / "experiments" / name).mkdir(parents=True)
    (tmp_path / "experiments/planned/experiment.json").write_text("{}")
    (tmp_path / "experiments/file").write_text("")
    (tmp_path / "experiments/link").symlink_to("nowhere")
    assert experiments_in(tmp_path) == ["link", "planned"]
    for _ in range(2):
        remove(tmp_path / "experiments/planned", below=2)
    remove(tmp_path / "experiments/file", below=2)
    assert sorted(os.listdir(tmp_path / "experiments")) == ["empty", "link"]


def test_a_folder_holds_folders_files_and_others_and_a_link_is_neither(tmp_path: Path) -> None:
    inner = tmp_path / "x"
    (inner / "folder").mkdir(parents=True)
    (inner / ".hidden").mkdir()
    (inner / "a_file").write_text("")
    (inner / "to_folder").symlink_to("folder")
    (inner / "to_file").symlink_to("a_file")
    os.mkfifo(inner / "pipe")
    entries = {".hidden": "folder", "a_file": "file", "folder": "folder"}
    entries |= {"pipe": "other", "to_file": "other", "to_folder": "other"}
    found = guarded.entries_in(inner, below=1)
    assert found == entries and [*found] == [*entries]
    assert guarded.folders_in(inner, below=1) == ["folder"]
    assert guarded.entries_in(tmp_path / "gone", below=1) == {}
    assert guarded.entries_in(inner / "a_file", below=2) == {}
    with pytest.raises(RefusedFileError):
        guarded.entries_in(inner / "to_folder", below=2)
    guarded.check_folder(inner / "folder", below=2)
    for name in ("gone", "to_folder", "a_file"):
        with pytest.raises(OSError):
            guarded.check_folder(inner / name, below=2)
    names = [guarded.is_file(inner / name, below=2) for name in entries]
    assert names == [kind == "file" for kind in entries.values()]


def test_a_path_may_begin_where_one_is_or_at_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/a").write_text("x")
    (tmp_path / "linked").symlink_to("runs")
    monkeypatch.chdir(tmp_path)
    for below in (1, 2, 3):
        assert guarded.read_text("runs/a", below=below) == "x"
    names = str(tmp_path / "runs/a").count("/")
    assert guarded.read_text(tmp_path / "runs/a", below=names) == "x"
    assert guarded.read_text("linked/a", below=1) == "x"
    for below in (2, 3):
        with pytest.raises(RefusedFileError) as refused:
            guarded.read_text("linked/a", below=below)
        assert str(refused.value) == "linked: links in a results folder are not followed"
    with pytest.raises(FileNotFoundError) as missing:
        guarded.read_text("gone/b", below=2)
    assert missing.value.filename == "gone"


def test_what_is_removed_goes_whole_and_nothing_that_a_link_leads_to(tmp_path: Path) -> None:
    inner = tmp_path / "x"
    (inner / "run/deep").mkdir(parents=True)
    (inner / "kept").mkdir()
    (inner / "kept/file").write_text("x")
    (inner / "run/deep/link").symlink_to("../../kept")
    (inner / "link").symlink_to("kept")
    for name in ("link", "run"):
        remove(inner / name, below=1)
    assert [path.name for path in inner.rglob("*")] == ["kept", "file"]
    guarded.copy_file(inner / "kept/file", tmp_path / "copy", below=2)
    assert (tmp_path / "copy").read_text() == "x"


def test_an_experiment_of_which_nobody_can_tell_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "experiments/x").mkdir(parents=True)
    assert experiments_in(tmp_path) == []

    def refuses(path: Any, **_: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(guarded.os, "lstat", refuses)
    assert experiments_in(tmp_path) == ["x"]
