"""Where a run was made: the environment lock, part of its identity, and environment.json, the account for readers.

Nothing secret leaves: environment variables by allow-list, everything else through `redact`.
"""

import hashlib
import os
import platform
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import Any

from harness.files import write_text
from harness.records import short_digest

HERE = Path(__file__).resolve().parent.parent
LOCKED = (
    "torch",
    "numpy",
    "triton",
    "nvidia-cudnn-cu13",
    "nvidia-cudnn-cu12",
    "nvidia-nccl-cu13",
    "nvidia-nccl-cu12",
    "nvidia-cuda-runtime",
    "nvidia-cuda-runtime-cu12",
)
SHOWN_VARIABLES = re.compile(
    r"(OMP_NUM_THREADS|MKL_NUM_THREADS|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|WORLD_SIZE|LOCAL_RANK|RANK|"
    r"PYTORCH_CUDA_ALLOC_CONF|TORCHINDUCTOR_\w+|TORCH_\w+|NCCL_\w+|SLURM_JOB_ID|SLURM_NODELIST|ABLATE_\w+)"
)
# lengths are bounded, for a line of a log may be very long; singular only, for tokens are what this project counts
_SECRET = (
    r"(?:[\w.-]{0,100}[_.-])?(?:(?:hf|gh|github|gitlab|wandb|api|access|auth|bearer|refresh|session|client|secret)?"
    r"(?:token|secret)|passw(?:or)?d|passphrase|credentials?|(?:api|access|private|secret)[-_]?key|auth)"
)
_CAMEL = (
    r"(?-i:[a-z]\w{0,60}?(?:Token|Secret|Passw(?:or)?d|Passphrase|Credentials?|(?:Api|Access|Private|Secret)Key))"  # githubToken
)
_TYPE = r"(?:str|bytes|int|float|bool|None|Any|Optional|Final|SecretStr)"  # of an annotation: a type is no secret
_ANNOTATION = rf"\s*:\s*{_TYPE}[\w\[\]|., ]{{0,60}}\s*="
_VALUE = r"(\"[^\"]*\"|'[^']*'|[^\s,;&\"']+)"
_ASSIGNED = re.compile(rf"(?i)(?<![\w-])({_SECRET}|{_CAMEL})([\"']?(?:{_ANNOTATION}|\s*[=:])\s*){_VALUE}")
_NO_SECRET = re.compile(rf"(?:None|True|False|null|true|false|lambda|\[redacted\]|{_TYPE})(?![\w.-])")
_COUNT = re.compile(r"\d{1,6}[)\]}]*")  # SEPARATOR_TOKEN = 256 is a token to be trained on; a password may well be a number


def _without_value(found: re.Match[str]) -> str:
    """`name = value` without the value, unless that can be no secret."""
    name, between, value = found.groups()
    harmless = name.lower().endswith("token") and (_COUNT.fullmatch(value) or len(value.strip("\"'")) < 5)
    return found[0] if harmless or _NO_SECRET.match(value) else f"{name}{between}[redacted]"


REDACTIONS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (_ASSIGNED, _without_value),
    (re.compile(rf"(?i)((?<![\w-])--?{_SECRET}\s+){_VALUE}"), r"\1[redacted]"),
    (re.compile(r"(?i)\b(authorization:\s*\w+\s+)[^\s\"']+"), r"\1[redacted]"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"), r"\1 [redacted]"),
    (re.compile(r"\b([a-z][a-z0-9+.-]{0,20}://)[^\s/@]{1,500}@"), r"\1[redacted]@"),
    (
        re.compile(
            r"\b(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|sk-[A-Za-z0-9_-]{16,}|xox[abprs]-[\w-]{10,}|"
            r"A(?:KIA|SIA)[0-9A-Z]{16}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*|AIza[\w-]{30,}|wandb_v\d_\w{20,}|glpat-[\w-]{16,})"
        ),
        "[redacted]",
    ),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), "[redacted key]"),
)


def redact(text: str) -> str:
    """The text without what looks like a password, token or key."""
    for pattern, replacement in REDACTIONS:
        text = pattern.sub(replacement, text)
    return text


def redact_file(path: Path) -> None:
    """The same for a file: what a process wrote into it itself has not been looked at before."""
    if path.exists() and (clean := redact(text := path.read_text(encoding="utf-8", errors="replace"))) != text:
        write_text(path, clean)


def _shown(name: str, value: str) -> str:
    """The value of an environment variable, redacted if its name or its look says so."""
    return redact(f"{name}={value}").partition("=")[2]


@dataclass(frozen=True, kw_only=True)
class Lock:
    """The versions that can change a number, and their digest."""

    digest: str
    versions: Mapping[str, str]


@cache
def environment_lock() -> Lock:
    """Python, torch and what it computes with, read without importing torch. torch's local version names CUDA or CPU."""
    versions = {"python": platform.python_version(), "machine": platform.machine()}
    for name in LOCKED:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return Lock(digest=short_digest(versions), versions=versions)


def _output(*command: str, cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False, cwd=cwd)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())


@cache
def _gpus() -> list[dict[str, str]]:
    """Name, identifier, driver and power limit of each GPU, as the driver's tool tells them; [] without one.

    Asked once in a process: the tool takes seconds where a driver sleeps. What changes is sampled while a run trains (gpus.py).
    """
    fields = ("name", "uuid", "driver_version", "power.limit")
    text = _output("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
    return [dict(zip(fields, (v.strip() for v in line.split(",")), strict=False)) for line in text.splitlines()]


@cache
def working_diff() -> str:
    """What the tracked files differ from the last commit in, redacted; empty outside a repository. Kept once, by its digest."""
    return redact(_output("git", "diff", "HEAD", cwd=HERE))


@cache
def _node() -> dict[str, Any]:
    """What stays the same while a process lives."""
    diff = working_diff()
    return {
        "host": socket.gethostname(),
        "system": platform.platform(),
        "cpu": _cpu_name(),
        "n_cpus": os.cpu_count(),
        "packages": sorted(f"{d.name}=={d.version}" for d in distributions()),
        "lock": dict(environment_lock().versions),
        "git": {
            "commit": _output("git", "rev-parse", "HEAD", cwd=HERE) or None,
            "dirty": bool(diff),
            "diff_sha256": hashlib.sha256(diff.encode()).hexdigest() if diff else None,  # code/<this>.diff in the results folder
        },
    }


def describe_environment(command: str | None = None) -> dict[str, Any]:
    """The content of environment.json: host, hardware, versions, code, command and the allowed environment variables."""
    return {
        "schema": 1,
        **_node(),
        "gpus": _gpus(),
        "command": redact(command if command is not None else shlex.join(sys.argv)),
        "variables": {k: _shown(k, v) for k, v in sorted(os.environ.items()) if SHOWN_VARIABLES.fullmatch(k)},
    }
