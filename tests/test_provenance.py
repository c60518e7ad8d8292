"""What a run tells about where it was made, and that nothing secret leaves."""

import json
import subprocess
from pathlib import Path

import pytest
from fake_matrix import Matrix

from harness.provenance import describe_environment, environment_lock, redact

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
    account = describe_environment("ablate run x --set a.token=hunter2")
    assert {"schema", "host", "system", "cpu", "n_cpus", "packages", "lock", "git", "gpus", "command", "variables"} <= set(
        account
    )
    assert account["command"] == "ablate run x --set a.token=[redacted]"
    assert account["variables"]["OMP_NUM_THREADS"] == "1"
    assert account["lock"]["torch"]
    assert any(p.startswith("numpy==") for p in account["packages"])
    assert "hunter2" not in json.dumps(account)
    assert "WANDB_API_KEY" not in account["variables"]


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
    assert sorted(h[1] for h in heads) == ["model.tied_head = False", "the baseline: nothing is changed"]
    assert all(h[0].startswith("run ") and "seed 0, 20 steps on cpu" in h[0] for h in heads)
    assert len(list((matrix.results / "code").glob("*.zip"))) == 1
    found = subprocess.run(["grep", "-rl", "hunter2hunter2", str(matrix.results)], capture_output=True, text=True, check=False)
    assert found.stdout == ""
