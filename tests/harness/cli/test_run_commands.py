"""The commands around runs, as a user types them: log, rerun, status, cancel, merge, clean."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.__main__ import main
from harness.cli.devices import device_of_plan
from harness.cli.progress import wall_words
from harness.cli.rerun import spec_of
from harness.errors import UserError
from harness.run.plan import Plan, PlanRun
from harness.run.read import read_lines
from harness.run.results import read_result, where_time_went
from harness.store.store import Store
from tests.fake_matrix import DEADLINE_S, STARTED, Matrix, ablate
from tests.sealing import write_plan
from tests.warm import forked_ablate


def copy_of(matrix: Matrix, folder: Path) -> Matrix:
    """The same results in a folder of their own."""
    folder.mkdir()
    shutil.copytree(matrix.results, folder / "results")
    return Matrix(folder)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    """Four finished runs and two that failed, which no test changes."""
    matrix = Matrix(tmp_path_factory.mktemp("finished"), n_seeds=3, FAKE={"2": "raise"})
    assert matrix.run()[0] == 1
    return matrix


def run_of(matrix: Matrix, seed: int = 0) -> Path:
    return matrix.runs()[seed][0]


def test_a_run_tells_its_story(finished: Matrix) -> None:
    run = run_of(finished)
    told = ablate(finished, "log", run.name[:8])
    assert told.code == 0
    for words in (
        f"{run.name}: finished",
        "fake as ",
        "seed 0, 20 steps, role loss, 1 x cpu",
        "commit ",
        "wall time",
        "step:20/20",
    ):
        assert words in told.out, words
    whole = ablate(finished, "log", run.name, "--json").json
    result = read_result(run)
    assert result is not None
    assert whole["result"] == result.to_json()
    assert whole["experiments"][0]["name"] == "fake"
    assert whole["config"]["seed"] == 0
    assert [r.get("status") for r in whole["attempts"]] == [None, "finished"]


def test_the_story_of_a_failed_run_ends_with_its_exception_and_holds_no_secret(
    finished: Matrix,
) -> None:
    told = ablate(finished, "log", run_of(finished, 2).name)
    assert told.out.strip().endswith("ValueError: the shapes do not match")
    assert "failed" in told.out
    assert "abcdef123" not in told.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("log", "zzz"), "no such run"),
        (("log", ""), "no such run"),
        (("rerun", "zzz"), "no such run"),
        (("clean", "stael"), "did you mean 'stale'?"),
        (("merge", "nowhere"), "no results folder"),
        (("cancel", "nothing"), "unknown experiment 'nothing'"),
        (("status", "--every", "0"), "must be a positive number"),
    ],
)
def test_bad_input_is_one_line(finished: Matrix, arguments: tuple[str, ...], words: str) -> None:
    ran = ablate(finished, *arguments)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert words in ran.err


@pytest.mark.slow
def test_a_finished_run_is_repeated_beside_its_result(finished: Matrix, tmp_path: Path) -> None:
    matrix = copy_of(finished, tmp_path / "copy")
    run = run_of(matrix)
    before = (run / "result.json").read_bytes()
    for _ in range(2):  # a repetition can be repeated
        again = ablate(matrix, "rerun", run.name[:10])
        assert again.code == 0, again.err
        assert "bit for bit as before" in again.out
    assert (run / "result.json").read_bytes() == before
    repeated = read_result(matrix.results / "reruns" / "runs" / run.name)
    assert repeated is not None
    assert repeated.val_loss == json.loads(before)["val_loss"]


def test_a_result_can_be_replaced_and_a_failed_run_is_done_where_it_is(
    finished: Matrix, tmp_path: Path
) -> None:
    matrix = copy_of(finished, tmp_path / "copy")
    matrix.environment["FAKE"] = "{}"
    run, failed = run_of(matrix), run_of(matrix, 2)
    before = json.loads((run / "result.json").read_text())["started"]
    assert ablate(matrix, "rerun", run.name, "--replace").code == 0
    assert json.loads((run / "result.json").read_text())["started"] > before
    assert [p.name[:16] for p in (matrix.results / "aside").iterdir()] == [run.name]
    assert ablate(matrix, "rerun", failed.name).code == 0
    assert [r["status"] for r in read_lines(failed / "attempts.jsonl") if "ended" in r] == [
        "failed",
        "finished",
    ]


def test_a_run_of_other_code_is_not_repeated_as_if_it_were_the_same(
    finished: Matrix, tmp_path: Path
) -> None:
    matrix = copy_of(finished, tmp_path / "copy")
    config = run_of(matrix) / "config.yaml"
    text = config.read_text()
    digest = text.split("model/gpt.py: ")[1][:16].strip("'\n")
    config.write_text(
        text.replace(
            f"digest: {text.split('digest: ')[1][:16]}", "digest: 0123456789abcdef", 1
        ).replace(digest, "0" * 16)
    )
    ran = ablate(matrix, "rerun", run_of(matrix).name)
    assert ran.code == 2
    assert "was made by other code (model/gpt.py)" in ran.err


def test_status_sums_up_and_says_where_the_time_went(finished: Matrix) -> None:
    ran = ablate(finished, "status", "fake")
    assert "4 finished, 2 failed" in ran.out
    assert "wall time: " in ran.out
    rows = ablate(finished, "status", "fake", "--json").json
    assert {
        "arm",
        "seed",
        "run",
        "status",
        "step",
        "steps",
        "val_loss",
        "train_time_s",
        "host",
        "attempt",
        "reason",
    } <= set(rows[0])
    assert rows[0]["wall"]["total_s"] > 0
    assert rows[0]["wall"]["idle_s"] >= 0
    watched = ablate(finished, "status", "fake", "--watch")
    assert watched.out.splitlines() == ["4 finished, 2 failed"]  # nothing goes on: one look


def test_where_the_time_went_adds_up_to_what_the_workers_spent() -> None:
    first = {
        "import_s": 2.0,
        "idle_s": 1.0,
        "train_s": 6.0,
        "validate_s": 1.0,
        "total_s": 10.0,
    }  # imports are paid once
    second = {
        "idle_s": 0.0,
        "compile_s": 0.5,
        "warmup_s": 0.5,
        "train_s": 8.0,
        "validate_s": 1.0,
        "total_s": 10.0,
    }
    seconds, useful = where_time_went([first, second])
    assert sum(seconds.values()) == 21.0
    assert (seconds["import"], seconds["training"], seconds["rest"], seconds["idle"]) == (
        2.0,
        14.0,
        1.0,
        1.0,
    )
    assert useful == 16 / 21
    assert wall_words([first, second]) == (
        "21 s, 76.2 % of it training or validation: import 9.5 %, compile 2.4 %, warm-up 2.4 %, training 66.7 %, "
        "validation 9.5 %, rest 4.8 %, idle 4.8 %"
    )
    assert where_time_went([])[1] == 0.0


def test_an_experiment_is_watched_and_cancelled_from_another_terminal(tmp_path: Path) -> None:
    matrix = Matrix(tmp_path, FAKE={"0": "slow", "1": "slow"})
    process = matrix.start()
    matrix.at("slow", 1)
    watch = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "harness",
            "status",
            "fake",
            "--watch",
            "--every",
            "0.1",
            "--results",
            str(matrix.results),
        ],
        stdout=subprocess.PIPE,
        text=True,
        env=matrix.environment,
        cwd=matrix.root,
    )
    STARTED.append(watch)
    assert watch.stdout is not None
    assert "running" in watch.stdout.readline()
    ran = ablate(matrix, "cancel", "fake")
    assert (ran.code, "fake: stopped: " in ran.out) == (0, True), ran.out
    out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, err) == (130, "")
    assert "interrupted: 0 of 4 runs are done" in out
    watch.kill()
    watch.communicate()
    matrix.environment["FAKE"] = "{}"
    assert matrix.run()[0] == 0  # a cancelled experiment can be gone on with


# ---------------------------------------------------------------- merge


@pytest.mark.slow
def test_two_folders_become_one_experiment(tmp_path: Path) -> None:
    for name in ("a", "b", "all"):
        (tmp_path / name).mkdir()
    here, there, whole = (
        Matrix(tmp_path / "a", n_seeds=2),
        Matrix(tmp_path / "b", n_seeds=3),
        Matrix(tmp_path / "all", n_seeds=3),
    )
    for matrix in (here, there, whole):
        assert matrix.run()[0] == 0
    moved = tmp_path / "brought by hand"
    there.results.rename(moved)
    done = ablate(here, "merge", str(moved), "--json").json[0]
    assert [len(done[k]) for k in ("copied", "here", "unfinished", "experiments", "problems")] == [
        2,
        4,
        0,
        1,
        0,
    ]
    assert here.table() == whole.table()
    shutil.rmtree(moved)  # nothing of it is needed any more
    assert here.table() == whole.table()
    here.file.write_text(here.file.read_text().replace("seeds: 2", "seeds: 3"))
    assert "everything is finished: 6 runs" in here.run()[1]


@pytest.mark.parametrize(
    "name", ["metrics.jsonl", "result.json", "config.yaml", "environment.json"]
)
def test_what_is_not_sound_is_left_where_it_is(finished: Matrix, tmp_path: Path, name: str) -> None:
    there = copy_of(finished, tmp_path / "there")
    here = Matrix(tmp_path)
    path = run_of(there) / name
    path.write_bytes(path.read_bytes().replace(b"0", b"1", 1))
    os.utime(path, (0, 0))  # the bytes are looked at, whatever their time
    ran = ablate(here, "merge", str(there.results), "--json")
    assert ran.code == 1
    done = ran.json[0]
    assert [len(done[k]) for k in ("copied", "unfinished", "problems")] == [3, 2, 1]
    assert name in done["problems"][0]
    assert run_of(there).name not in here.statuses()
    assert here.trailing() == []


def test_a_run_under_another_runs_name_and_code_under_another_name_are_found(
    finished: Matrix, tmp_path: Path
) -> None:
    there, here = copy_of(finished, tmp_path / "there"), Matrix(tmp_path)
    one, two = (runs[0] for seed, runs in sorted(there.runs().items()) if seed < 2)
    shutil.rmtree(two)
    shutil.copytree(one, two)
    code = next((there.results / "code").glob("*.zip"))
    code.write_bytes(code.read_bytes()[:-30])
    ran = ablate(here, "merge", str(there.results))
    assert ran.code == 1
    assert f"left where it is: {two / 'result.json'} is damaged" in ran.out
    assert f"left where it is: {code} is not what its name says" in ran.out
    assert not list((here.results / "code").glob("*.zip"))


def test_a_foreign_trainers_code_comes_with_its_runs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "open('note.txt')\nprint('step:1/1 val_loss:3.0000 train_time:5ms')\n"
    )
    (tmp_path / "note.txt").write_text("no Python\n")
    trainer = {"command": "python {script}", "file": "train.py", "with": ["note.txt"], "gpus": 0}
    (tmp_path / "other.yaml").write_text(
        json.dumps(
            {"name": "other", "trainer": trainer, "changes": {"a": {"args": ["-a"]}}, "seeds": 1}
        )
    )

    def call(*words: str) -> None:
        done = forked_ablate(*words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr

    call("run", "other.yaml", "--no-report", "--results", "there")
    call("merge", "there", "--results", "here")
    kept = [
        sorted(p.name for p in (tmp_path / place / "code").glob("*.zip"))
        for place in ("here", "there")
    ]
    assert kept[0] == kept[1]
    assert len(kept[0]) == 1


@pytest.mark.slow
def test_another_experiment_of_the_same_name_is_refused(finished: Matrix, tmp_path: Path) -> None:
    there, here = copy_of(finished, tmp_path / "there"), Matrix(tmp_path)
    here.file.write_text(
        here.file.read_text().replace(
            "untied_head: r08.untied_head", "gelu: {model.activation: gelu}"
        )
    )
    assert here.run()[0] == 0
    ran = ablate(here, "merge", str(there.results))
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "has another arms than in" in ran.err
    assert len(here.statuses()) == 4  # nothing was brought in


def test_one_bad_folder_leaves_everything_as_it_was(finished: Matrix, tmp_path: Path) -> None:
    here = Matrix(tmp_path)
    ran = ablate(here, "merge", str(finished.results), str(tmp_path / "nowhere"))
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert not here.results.exists()


# ---------------------------------------------------------------- clean


@pytest.mark.slow
def test_clean_removes_what_may_go_and_nothing_else(tmp_path: Path) -> None:
    matrix = Matrix(tmp_path, FAKE={"0": "kill once"}, FAKE_MARKS=str(tmp_path))
    assert matrix.run()[0] == 0
    whole = matrix.table()
    plan = matrix.results / "experiments" / "fake" / "experiment.json"
    text = json.loads(plan.read_text())
    stale = matrix.results / "runs" / "0123456789abcdef"
    shutil.copytree(run_of(matrix, 1), stale)
    text["runs"][0]["older"] = [stale.name]
    write_plan(plan, text)
    (matrix.results / "cache" / "kernels").mkdir(parents=True)
    (matrix.results / "cache" / "kernels" / "one").write_bytes(b"x" * 5000)
    assert ablate(matrix, "rerun", run_of(matrix).name).code == 0
    torn = (
        matrix.results / "experiments" / "fake" / ".plan.lock.0a1b2c3d"
    )  # by a runner killed in a write
    torn.write_text("{")
    would = ablate(matrix, "clean", "--dry-run", "--json").json
    assert {k["kind"]: k["n"] for k in would["kinds"]} == {
        "stale": 1,
        "trunks": 0,
        "attempts": 3,  # what the kill left, the tombstone of the attempt after it, the torn lock
        "aside": 0,
        "reruns": 1,
        "caches": 1,
    }
    assert stale.is_dir()
    assert not would["removed"]
    assert ablate(matrix, "clean", "stale").code == 0
    assert not stale.exists()
    assert (matrix.results / "cache" / "kernels").is_dir()
    assert ablate(matrix, "clean").code == 0
    assert not list(matrix.results.rglob("attempts")) or not list(
        matrix.results.rglob("attempts/*")
    )
    assert not torn.exists()
    assert not (matrix.results / "cache" / "kernels").exists()
    assert matrix.table() == whole
    assert "everything is finished" in matrix.run()[1]


def test_clean_leaves_a_run_in_progress_alone(tmp_path: Path) -> None:
    matrix = Matrix(tmp_path, n_seeds=1, FAKE={"0": "slow"})
    process = matrix.start()
    matrix.at("slow", 2)
    (matrix.results / "cache" / "kernels").mkdir(parents=True)
    assert {k["kind"]: k["n"] for k in ablate(matrix, "clean", "--json").json["kinds"]}[
        "attempts"
    ] == 0
    assert (matrix.results / "cache" / "kernels").is_dir()
    assert {r["status"] for r in ablate(matrix, "status", "--json").json} == {"running"}
    process.terminate()
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 143


def test_a_run_whose_configuration_is_gone_or_damaged_is_one_line(tmp_path: Path) -> None:
    store = Store.create(tmp_path)
    config = store.directory("a" * 16) / "config.yaml"
    config.parent.mkdir()
    with pytest.raises(UserError, match=r"config.yaml: No such file.*cannot be done again$"):
        spec_of(store, "a" * 16)
    runs = [
        PlanRun(arm="x", seed=0, replicate=0, budget=1, role="loss", block=0, run_id=name * 16)
        for name in "ab"
    ]
    plan = Plan(name="x", runs=tuple(runs))  # an older one, which does not say its device
    assert device_of_plan(plan, tmp_path) is None
    config.write_text("[[[")
    other = store.directory("b" * 16) / "config.yaml"
    other.parent.mkdir()
    other.write_text("device: cuda\n")
    assert device_of_plan(plan, tmp_path) == "cuda"


def test_clean_says_what_is_left_and_what_would_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = Store.create(tmp_path).root
    (results / "cache").mkdir()
    (results / "cache" / "kernels").write_bytes(b"x" * 2**21)
    (results / "kept").write_bytes(b"x" * 2**20)
    for options, said in (
        (["--dry-run"], "3.0 MiB, would leave 1.0 MiB"),
        ([], "3.0 MiB, left 1.0 MiB"),
        ([], "1.0 MiB, left 1.0 MiB"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["clean", *options, "--results", str(results)])
        assert not ended.value.code
        assert capsys.readouterr().out.splitlines()[-1] == f"{results}: {said}"
    with pytest.raises(SystemExit):
        main(["clean", "caches", "reruns", "--json", "--results", str(results)])
    told = json.loads(capsys.readouterr().out)
    assert {kind["kind"] for kind in told["kinds"]} == {"caches", "reruns"}
