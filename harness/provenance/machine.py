"""Where a run was made: environment.json, the account for readers.

Nothing secret leaves: environment variables by allow-list, everything else through `redact`.
"""

import hashlib
import os
import platform
import re
import shlex
import socket
import sys
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

from harness.errors import UserError
from harness.node.nvidia import query_gpus
from harness.provenance.git import git
from harness.provenance.lock import environment_lock
from harness.provenance.redact import redact, without_bare_keys
from harness.run.document import Content

HERE = Path(__file__).resolve().parents[2]
SHOWN_VARIABLES = re.compile(
    r"(OMP_NUM_THREADS|MKL_NUM_THREADS|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|"
    r"WORLD_SIZE|LOCAL_RANK|RANK|PYTORCH_CUDA_ALLOC_CONF|TORCHINDUCTOR_\w+|TORCH_\w+|NCCL_\w+|"
    r"SLURM_JOB_ID|SLURM_NODELIST|ABLATE_\w+)"
)


def _shown(name: str, value: str) -> str:
    """The value of an environment variable, redacted if its name or its look says so."""
    return without_bare_keys(f"{name}={value}").partition("=")[2]


def _said(*arguments: str) -> str:
    """What git says of the folder of this code, empty where it says nothing."""
    try:
        said = git(HERE, *arguments)
    except UserError:
        return ""
    return (said or b"").decode("utf-8", "replace").strip()


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.processor(),
    )


@cache
def gpus_here() -> list[dict[str, str]]:
    """Name, identifier, driver and power limit of each GPU, as the driver's tool tells them.

    [] without one.

    Asked once in a process: the tool takes seconds where a driver sleeps. What changes is sampled
    while a run trains (gpus.py).
    """
    fields = ("name", "uuid", "driver_version", "power.limit")
    return [dict(zip(fields, values, strict=False)) for values in query_gpus(*fields)]


@cache
def working_diff() -> str:
    """What the tracked files differ from the last commit in, redacted; empty outside a repository.

    Kept once, by its digest.
    """
    return redact(_said("diff", "--no-ext-diff", "--no-textconv", "HEAD"))


@dataclass(frozen=True, kw_only=True)
class GitState:
    """The last commit, and by how much the files differ from it."""

    commit: str | None
    dirty: bool  # files that no commit holds too
    untracked: int  # how many these are
    diff_sha256: str | None  # code/<this>.diff in the results folder


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """What stays the same while a process lives."""

    host: str
    system: str
    cpu: str
    n_cpus: int | None
    packages: list[str]
    lock: dict[str, str]  # the versions that can change a number
    git: GitState


@dataclass(frozen=True, kw_only=True)
class Environment(NodeFacts):
    """environment.json: host, hardware, versions, code, command, allowed variables."""

    gpus: list[dict[str, str]]
    command: str
    variables: dict[str, str]

    def to_json(self) -> Content:
        return {"schema": 1, **asdict(self)}


@cache
def _node() -> NodeFacts:
    """What stays the same while a process lives."""
    installed = [package.metadata for package in distributions()]  # parsed at every look at it
    diff = working_diff()
    untracked = _said("ls-files", "--others", "--exclude-standard").splitlines()
    digest = hashlib.sha256(diff.encode()).hexdigest() if diff else None
    return NodeFacts(
        host=socket.gethostname(),
        system=platform.platform(),
        cpu=_cpu_name(),
        n_cpus=os.cpu_count(),
        packages=sorted(f"{m['Name']}=={m['Version']}" for m in installed),
        lock=dict(environment_lock().versions),
        git=GitState(
            commit=_said("rev-parse", "HEAD") or None,
            dirty=bool(diff or untracked),
            untracked=len(untracked),
            diff_sha256=digest,
        ),
    )


def describe_environment(command: str | None = None) -> Environment:
    """Where this process runs. command: as the user gave it; None: this process's own."""
    shown = {}
    for name, value in sorted(os.environ.items()):
        if SHOWN_VARIABLES.fullmatch(name):
            shown[name] = _shown(name, value)
    return Environment(
        **vars(_node()),
        gpus=gpus_here(),
        command=redact(command if command is not None else shlex.join(sys.argv)),
        variables=shown,
    )
