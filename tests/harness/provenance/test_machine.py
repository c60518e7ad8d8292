"""What a run tells about where it was made, and that nothing secret leaves."""

import hashlib
import importlib.util
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UserError
from harness.provenance import launches
from harness.provenance import machine as provenance
from harness.provenance.git import NO_GIT, OFF, git, run_git
from harness.provenance.lock import environment_lock
from harness.provenance.machine import describe_environment
from harness.provenance.redact import line_with_secret, redact, without_bare_keys
from harness.run.measured import Measured
from harness.run.metrics import Validation
from harness.run.read import read_lines
from harness.run.spec import Outcome
from harness.store.attempt import claim
from harness.store.store import Store
from tests.fake_matrix import Matrix
from tests.one_run import SPEC
from tests.planted_secrets import HIDDEN, PLANTED, leaks
from tests.warm import forked_ablate

SECRETS = [
    "hf_" + "a1B2" * 8,
    "ghp_" + "Z9y8" * 9,
    "github_pat_" + "11AAAA" * 5,
    "sk-" + "proj1234" * 4,
    "xoxb-1234567890-abcdef",
    "AKIA" + "ABCD1234EFGH5678",
    "glpat-" + "x1y2z3w4" * 3,
    "ASIA" + "ABCD1234EFGH5678",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
]
ASSIGNED = [
    "WANDB_API_KEY={}",
    "HF_TOKEN={}",
    "--token {}",
    "--api-key={}",
    "password: {}",
    "'client_secret': '{}'",
    '"auth": "{}"',
    "AWS_SECRET_ACCESS_KEY={}",
    '+    token = "{}"',
    "https://user:{}@host.example/path",
    "git+https://{}@github.com/a/b",
    "Authorization: Bearer {}",
    "-H 'Authorization: token {}'",
    "https://host/x?access_token={}&y=1",
    "DB_PASSWD='{} and more'",
    'hf_token: str = "{}"',
    'hf_token: str | None = "{}"',
    "githubToken={}",
    "githubtoken={}",
    "apiKey: '{}'",
    '"clientSecret": "{}"',
    "aws_secret_access_key = {}",
    "AWS_SESSION_TOKEN={}",
    "db.password = '{}'",
]
HARMLESS = [
    "ablate run minute --set data.batch_tokens=8192 --set data.val_tokens=65536",
    "tokens_per_s: 51200.0",
    "batch_tokens 512",
    "author: someone",
    "step:10/20 val_loss:2.1000 train_time:5ms",
    "token ids and targets, both (rows, seq_len)",
    "window_tokens=1024",
    "SEPARATOR_TOKEN = 256",
    "separator_token: 50256",
    "eos_token=50256, pad_token=0",
    "token: str",
    "def read(token: str | None = None, auth: bool = False) -> None:",
    "token = None",
    'choices={"token": "r13", "clipped": "r15"}',
    '"token": lambda w: w - 1,',
    "https://host.example/path?x=1",
    "a@b.example",
    "self.tokens = count_tokens(path)",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_what_looks_like_a_key_is_redacted_anywhere(secret: str) -> None:
    assert redact(f"before {secret} after") == "before [redacted] after"


@pytest.mark.parametrize("text", ASSIGNED)
def test_what_is_called_a_secret_is_redacted(text: str) -> None:
    shown = redact(text.format("hunter2hunter2"))
    assert "hunter2" not in shown
    assert "[redacted]" in shown
    assert redact(shown) == shown


@pytest.mark.parametrize("text", HARMLESS)
def test_the_words_of_this_project_are_left_alone(text: str) -> None:
    assert redact(text) == text


def test_a_number_may_be_a_password_and_a_long_one_a_token() -> None:
    assert redact("password = 123456") == "password = [redacted]"
    assert redact("token = 123456789012") == "token = [redacted]"


@pytest.mark.parametrize(
    ("name", "shown", "hidden"),
    [
        ("token", "abc1", "abcd1"),
        ("token", "123456", "1234567"),
        ("token", "+12.5e3)", "12.5x3)"),
        ("api_key", "abcdefg", "abcdefgh"),
        ("MY_KEY", "abcdef1", "abcdefg1"),
        ("MY_KEY", "abcdefgh", "'abcdefgh'"),
        ("password", "''", "x"),
        ("passwords", "abcdefgh1", None),
        ("credentials", "''", "x"),
        ("loss_per_token", "abcdef1", None),
        ("Xtoken", "abcdef1", None),
        ("aToken", "abc1", "abcdef1"),
        ("sort_key", "abcdefgh1", None),
    ],
)
def test_a_value_is_a_secret_from_so_many_letters_on_by_its_name(
    name: str, shown: str, hidden: str | None
) -> None:
    for before in ("a ", ""):
        assert redact(f"{before}{name}={shown}\nb") == f"{before}{name}={shown}\nb"
        if hidden is not None:
            assert redact(f"{before}{name}={hidden}\nb") == f"{before}{name}=[redacted]\nb"


@pytest.mark.parametrize(
    ("shown", "hidden"),
    [
        ("ABCDEFGHIJKLabcdefgh123", "ABCDEFGHIJKLabcdefgh1234"),
        ("0123456789abcdef0123456789abcde", "0123456789abcdef0123456789abcdef"),
        ("aBcDeFgH1" * 3, "aBcDeFgH12" * 3),
        ("Rates_of-2layers_4heads-both", "Rates_of-2layers_4headsOfBoth"),
        ("Rates_of-2-layers-andTheHeads", "Rates_of-2-layers-andTheHeads2"),
    ],
)
def test_a_word_is_a_key_from_so_many_letters_on(shown: str, hidden: str) -> None:
    assert without_bare_keys(f"--note {shown} x") == f"--note {shown} x"
    assert without_bare_keys(f"--note {hidden} x") == "--note [redacted] x"
    assert without_bare_keys(f"commit: {hidden}") == f"commit: {hidden}"
    for n_between, is_near in ((14, True), (15, False)):  # of 20 letters before it
        text = f"commit{' ' * n_between}{hidden}"
        assert (without_bare_keys(text) == text) is is_near


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("a = 1\n\nURL = 'https://hooks.slack.com/services/T0/B0/{}'", 3),
        ("key = 'lin_api_{0}{0}'", 1),
        ("key = 'hf_{0}'\n", 1),
        ("'''\n-----BEGIN PRIVATE KEY-----", 2),
        ("token = '{}'", 1),
        ("token = 'a1{{0}}{}'", None),
        ("token = 'abcdefgh12 {}'", None),
        ("token = 'abcdefgh123'", None),
        ("token = 'abcdefghijkl'", None),
        ("token = '123456789012'", None),
        ("url = 'https://me:{}@host.example/x'", None),
        ("token = os.environ['HF_TOKEN']", None),
    ],
)
def test_a_program_holds_a_secret_where_a_text_of_letters_and_digits_is_one(
    code: str, line: int | None
) -> None:
    assert line_with_secret(code.format("a1B2c3D4e5F6g7H8")) == line


def test_an_own_value_counts_from_six_letters_on_and_within_a_word_from_ten_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = {
        "A_TOKEN": "qwxyz",
        "B_TOKEN": "qwxyzv",
        "C_TOKEN": "kjhgfdsap",
        "D_TOKEN": "mnbvcxzlpo",
    }
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    assert redact("qwxyz qwxyzv kjhgfdsap") == "qwxyz [redacted] [redacted]"
    assert redact("1kjhgfdsap 1mnbvcxzlpo2") == "1kjhgfdsap 1[redacted]2"
    short, long = "ab1cd2ef3gh4ij5", "ab1cd2ef3gh4ij5k"
    monkeypatch.setenv("E_SECRET", f"{short}\n{long}\n")
    assert redact(f"> {short} <\n> {long} <") == f"> {short} <\n> [redacted] <"


def test_a_private_key_is_redacted_whole_even_if_cut_short() -> None:
    assert redact("x\n-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n") == "x\n[redacted key]"


@pytest.mark.slow
def test_a_very_long_line_is_no_trouble() -> None:
    for text in ("x" * 300_000, "a." * 150_000, "a-b_c://" * 40_000):
        assert redact(text) == text


def test_the_account_of_a_run_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("NCCL_TOKEN", "hunter2")
    monkeypatch.setenv("WANDB_API_KEY", "hunter2")
    monkeypatch.setenv("HOME_SECRET", "hunter2")
    account = describe_environment("ablate run x --set a.token=hunter2").to_json()
    assert {
        "schema",
        "host",
        "system",
        "cpu",
        "n_cpus",
        "packages",
        "lock",
        "git",
        "gpus",
        "command",
        "variables",
    } <= set(account)
    assert account["command"] == "ablate run x --set a.token=[redacted]"
    assert account["variables"]["OMP_NUM_THREADS"] == "1"
    assert account["lock"]["torch"]
    assert any(p.startswith("numpy==") for p in account["packages"])
    assert "hunter2" not in json.dumps(account)
    assert "WANDB_API_KEY" not in account["variables"]


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """What describes a machine, which has not looked at it yet, in another folder of code."""
    spec = importlib.util.find_spec("harness.provenance.machine")
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "HERE", tmp_path)
    return module


def in_repository(folder: Path, *words: str) -> str:
    as_somebody = ("-c", "user.name=a", "-c", "user.email=a@b.example")
    done = subprocess.run(
        ["git", *as_somebody, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize(("edited", "n_new"), [(False, 0), (False, 2), (True, 0)])
def test_a_run_says_its_commit_and_what_no_commit_holds(
    edited: bool, n_new: int, fresh: Any, tmp_path: Path
) -> None:
    (tmp_path / "file.py").write_text("one = 1\n")
    in_repository(tmp_path, "init", "-q")
    in_repository(tmp_path, "add", ".")
    in_repository(tmp_path, "commit", "-qm", "one")
    if edited:
        (tmp_path / "file.py").write_text("one = 2\n")
    for n in range(n_new):
        (tmp_path / f"new{n}").touch()
    state = fresh.describe_environment().to_json()["git"]
    diff = fresh.working_diff()
    assert ("+one = 2" in diff) is edited
    assert state == {
        "commit": in_repository(tmp_path, "rev-parse", "HEAD"),
        "dirty": edited or n_new > 0,
        "untracked": n_new,
        "diff_sha256": hashlib.sha256(diff.encode()).hexdigest() if edited else None,
    }


def test_code_outside_a_repository_has_no_commit(fresh: Any) -> None:
    state = {"commit": None, "dirty": False, "untracked": 0, "diff_sha256": None}
    assert fresh.describe_environment().to_json()["git"] == state


def test_a_processor_is_called_as_the_system_calls_it_and_gpus_as_their_driver_does(
    fresh: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "processor\t: 0\nmodel\t\t: 85\nmodel name\t: A CPU: fast\nmodel name\t: other\n"
    really = Path.read_text

    def read_text(path: Path, *how: Any, **more: Any) -> str:
        return text if str(path) == "/proc/cpuinfo" else really(path, *how, **more)

    monkeypatch.setattr(Path, "read_text", read_text)
    told = [["H200", "GPU-1", "570.1", "700.00 W"], ["H100", "GPU-2"]]
    monkeypatch.setattr(fresh, "query_gpus", lambda *_: told)
    account = fresh.describe_environment()
    assert account.cpu == "A CPU: fast"
    gpu = {"name": "H200", "uuid": "GPU-1", "driver_version": "570.1", "power.limit": "700.00 W"}
    assert account.gpus == [gpu, {"name": "H100", "uuid": "GPU-2"}]


def test_a_command_is_told_as_it_was_given_and_packages_in_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.argv", ["ablate", "run", "a b", "--set", "a.token=hunter2"])
    account = describe_environment()
    assert account.command == "ablate run 'a b' --set a.token=[redacted]"
    assert describe_environment("").command == ""
    assert account.packages == sorted(account.packages) and len(account.packages) > 5
    assert account.n_cpus == os.cpu_count()
    assert [*account.variables] == sorted(account.variables)


def test_the_lock_names_what_can_change_a_number() -> None:
    lock = environment_lock()
    assert {"python", "machine", "torch", "numpy"} <= set(lock.versions)
    assert len(lock.digest) == 16


def test_a_run_keeps_its_account_its_code_and_its_toggles_in_words(tmp_path: Path) -> None:
    matrix = Matrix(tmp_path, n_seeds=1, WANDB_API_KEY="hunter2hunter2")
    assert matrix.run("--set", "data.val_every=5")[0] == 0
    heads = []
    for run in matrix.runs()[0]:
        account = json.loads((run / "environment.json").read_text())
        assert "--set data.val_every=5" in account["command"]
        assert account["git"]["commit"] is None or len(account["git"]["commit"]) == 40
        diff = account["git"]["diff_sha256"]
        assert diff is None or (matrix.results / "code" / f"{diff}.diff").is_file()
        heads.append((run / "log.txt").read_text().splitlines()[:3])
    assert sorted(h[1] for h in heads) == [
        "model.tied_head = False",
        "the baseline: nothing is changed",
    ]
    assert all(h[0].startswith("run ") and "seed 0, 20 steps on cpu" in h[0] for h in heads)
    assert len(list((matrix.results / "code").glob("*.zip"))) == 1
    found = subprocess.run(
        ["grep", "-rl", "hunter2hunter2", str(matrix.results)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout == ""


@pytest.mark.slow
def test_no_planted_secret_gets_out_however_a_run_ends(tmp_path: Path) -> None:
    kinds = {"0": "tell train", "1": "tell fail", "2": "tell say", "3": "tell kill"}
    secrets = {
        "FAKE_SECRETS": "\n".join(PLANTED.values()),
        "HF_TOKEN": PLANTED["hf"],
        "NCCL_NOTE": PLANTED["url"],
    }
    matrix = Matrix(tmp_path, n_seeds=4, FAKE=kinds, **secrets)
    matrix.environment["ABLATE_NOTE"] = PLANTED["github"]
    code, *shown = matrix.run("--set", "question=asked by token=" + HIDDEN[0])
    assert code == 1
    ends = {seed: {status for run in matrix.ends(seed) for status in run} for seed in range(4)}
    assert ends == {0: {"finished"}, 1: {"failed"}, 2: {"failed"}, 3: {"failed"}}
    told = "".join((run / "log.txt").read_text() for runs in matrix.runs().values() for run in runs)
    assert told.count("hf=") == 0
    assert told.count("[redacted]") >= 8 * len(PLANTED)  # it was there, and is not
    page, table = tmp_path / "page.html", tmp_path / "table.csv"
    commands = [("log", run.name) for runs in matrix.runs().values() for run in runs[:1]]
    commands += [
        ("log", matrix.runs()[1][0].name, "--json"),
        ("status", "fake"),
        ("status", "fake", "--json"),
    ]
    commands += [
        ("report", "fake", "-o", str(page)),
        ("export", "fake", "-o", str(table)),
        ("clean", "attempts", "--dry-run"),
    ]
    for words in commands:
        done = matrix.forked(*words)
        assert done.returncode == 0, done.stderr
        shown += [done.stdout, done.stderr]
    shown += [page.read_text(), table.read_text()]
    shown += [p.read_text(errors="replace") for p in matrix.results.rglob("*") if p.is_file()]
    assert [leaks(text) for text in shown if leaks(text)] == []


def test_an_attempt_that_was_killed_keeps_its_log_without_secrets(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "results")
    out = claim(store, SPEC, token="one")
    assert out is not None
    os.write(
        out.log_file.fileno(), ("\n".join(PLANTED.values()) + "\n").encode()
    )  # as a library prints
    out.release()  # its process is no more, and nobody noted its end
    again = claim(store, SPEC, token="two")
    assert again is not None
    again.describe({"host": "here"})
    again.metric(Validation(step=10, val_loss=1.5, train_time_s=1.0))
    kept = (store.directory(SPEC.run_id) / "attempts" / "1" / "log.txt").read_text()
    assert (leaks(kept), kept.count("[redacted]")) == ([], len(PLANTED))
    ends = read_lines(store.directory(SPEC.run_id) / "attempts.jsonl")
    assert [(e["attempt"], e["status"]) for e in ends if "ended" in e] == [(1, "interrupted")]
    again.finish(Outcome(status="diverged", reason=PLANTED["aws"], final=Measured(val_loss=9.0)))
    result = (store.directory(SPEC.run_id) / "result.json").read_text()
    assert (leaks(result), "[redacted]" in result) == ([], True)


def test_a_secret_in_a_change_that_is_not_committed_stays_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*words: str) -> None:
        subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True)

    (tmp_path / "file.py").write_text("one = 1\n")
    run("init", "-q")
    run("add", ".")
    run("-c", "user.name=a", "-c", "user.email=a@b.example", "commit", "-qm", "one")
    (tmp_path / "file.py").write_text(
        "one = 2\n" + "".join(f"# {text}\n" for text in PLANTED.values())
    )
    monkeypatch.setattr(provenance, "HERE", tmp_path)
    diff = provenance.working_diff.__wrapped__()
    assert "+one = 2" in diff
    assert (leaks(diff), diff.count("[redacted]")) == ([], len(PLANTED))


@pytest.mark.parametrize(
    "asked", [("--env", PLANTED["wandb"]), ("--command", "python {script} --token " + HIDDEN[0])]
)
def test_a_secret_asked_of_a_foreign_trainer_is_refused_without_saying_it(
    tmp_path: Path, asked: tuple[str, str]
) -> None:
    (tmp_path / "train.py").write_text("print('x')\n")
    scripts = ("ab", "train.py", "train.py", "--gpus-per-run", "0")
    done = forked_ablate(*scripts, *asked, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "holds a secret" in done.stderr
    assert leaks(done.stderr) == []
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("name", ["MY_OWN_KEY", "STRIPE_KEY"])
def test_a_name_that_ends_in_key_in_capitals_is_a_secrets(name: str) -> None:
    assert redact(f"{name}=abcdefgh1234") == f"{name}=[redacted]"
    assert redact("MONKEY=abcdefgh1234") == "MONKEY=abcdefgh1234"


def test_a_git_that_hangs_is_one_line_and_no_run_fails_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def hangs(command: list[str], *, timeout: float, **_: Any) -> None:
        raise subprocess.TimeoutExpired(command, timeout)

    def missing(*_: Any, **__: Any) -> None:
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", hangs)
    with pytest.raises(UserError) as refused:
        run_git(tmp_path, "status")
    assert str(refused.value) == f"{tmp_path}: git status did not end in 60 s"
    monkeypatch.setattr(subprocess, "run", missing)
    for folder, said in ((tmp_path, NO_GIT), (tmp_path / "gone", "/gone: no such folder")):
        with pytest.raises(UserError) as refused:
            run_git(folder, "status")
        assert str(refused.value).endswith(said)
    provenance.working_diff.cache_clear()
    assert provenance.working_diff() == ""
    provenance.working_diff.cache_clear()


def test_git_starts_without_what_would_lead_it_elsewhere_or_start_anything(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("GIT_DIR", "GIT_PAGER", "GIT_CONFIG_GLOBAL", "GIT_EXEC_PATH", "MY_GIT_DIR"):
        monkeypatch.setenv(name, "/elsewhere")
    started: dict[str, Any] = {}

    def run(command: list[str], **how: Any) -> Any:
        started.update(how, command=command)
        return subprocess.CompletedProcess(command, 0, b"")

    monkeypatch.setattr(subprocess, "run", run)
    run_git(tmp_path, "diff", "HEAD", variables={"GIT_INDEX_FILE": "/own"})
    command, environment = started["command"], started["env"]
    assert command[:2] == ["git", "--no-pager"] and command[-2:] == ["diff", "HEAD"]
    assert command[2:-2:2] == ["-c"] * len(OFF) and command[3:-2:2] == [*OFF]
    told = {name: environment.get(name) for name in ("GIT_DIR", "GIT_PAGER", "GIT_INDEX_FILE")}
    assert told == {"GIT_DIR": None, "GIT_PAGER": "cat", "GIT_INDEX_FILE": "/own"}
    for name in ("GIT_CONFIG_GLOBAL", "GIT_EXEC_PATH", "MY_GIT_DIR"):
        assert environment[name] == "/elsewhere"
    assert environment["PATH"] == os.environ["PATH"]
    assert (started["cwd"], started["stdin"]) == (tmp_path, subprocess.DEVNULL)


@pytest.mark.parametrize(("ended", "said"), [(0, b"said"), (1, None), (128, None), (-9, None)])
def test_what_a_git_printed_that_failed_or_was_killed_says_nothing(
    ended: int, said: bytes | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, ended, b"said")
    )
    assert git(tmp_path, "status") == said


def test_a_key_can_be_kept_where_a_folder_can_be_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "not" / "yet"))
    assert launches.can_keep_key() and not (tmp_path / "not").exists()
    (tmp_path / "file").write_text("in the way of a folder")
    (tmp_path / "file").chmod(0o755)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert not launches.can_keep_key()
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    assert not launches.can_keep_key() and launches.mark_of("x") is None


def test_a_mark_is_of_the_user_who_made_it_and_asking_after_one_makes_no_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
    for asked in ("a mark", None):
        assert not launches.is_mark_of(asked, ["x"])
    assert launches.can_keep_key() and not (tmp_path / "mine").exists()
    mark = launches.mark_of(["x"])
    assert mark == launches.mark_of(["x"]) and launches.is_mark_of(mark, ["x"])
    for other, what in ((mark, ["y"]), (f"{mark}0", ["x"]), ("é", ["x"]), (7, ["x"])):
        assert not launches.is_mark_of(other, what)
    key = launches.key_file()
    assert (len(key.read_bytes()), key.stat().st_mode & 0o777) == (32, 0o600)
    assert key.parent.stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    (tmp_path / "another/ablate").mkdir(parents=True)
    assert not launches.is_mark_of(mark, ["x"]) and launches.mark_of(["x"]) != mark
    launches.key_file().write_bytes(b"x" * 31)  # cut off: none
    assert launches.mark_of(["x"]) is None


def test_a_key_lies_with_what_programs_keep_of_a_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for state in (None, ""):  # an empty one counts as none
        monkeypatch.delenv("XDG_STATE_HOME") if state is None else monkeypatch.setenv(
            "XDG_STATE_HOME", state
        )
        assert launches.key_file() == tmp_path / ".local/state/ablate/launch.key"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
    assert launches.key_file() == tmp_path / "mine/ablate/launch.key"
