"""NVIDIA's own tool, nvidia-smi: the one place that calls it."""

import subprocess
from pathlib import Path

from harness.errors import UserError

ANSWERS_WITHIN_S = 20
DEVICES = Path("/dev")  # nvidia0 and so on, where this container may use a GPU of its host

CURE = "restart the driver or the node, or hide the GPUs with CUDA_VISIBLE_DEVICES="


def ask_driver(*arguments: str) -> list[str]:
    """The lines that nvidia-smi prints; none where it is missing, fails or does not answer."""
    try:
        return _ask(*arguments) or []
    except subprocess.TimeoutExpired:
        return []


def list_gpus() -> list[str]:
    """A line for each GPU; none where there is no driver.

    Raises UserError where there is one that cannot be asked: how many there are is not known.
    """
    try:
        lines = _ask("-L")
    except subprocess.TimeoutExpired:
        raise UserError(
            f"nvidia-smi does not answer within {ANSWERS_WITHIN_S:g} s, so nobody knows this "
            f"node's GPUs: {CURE}"
        ) from None
    if lines is None and any(DEVICES.glob("nvidia[0-9]*")):
        raise UserError(f"nvidia-smi fails on a node with GPUs: {CURE}")
    return [line for line in lines or () if line.startswith("GPU ")]


def _ask(*arguments: str) -> list[str] | None:
    """What nvidia-smi prints, None where it is missing or fails.

    Raises TimeoutExpired where it does not answer.
    """
    try:
        done = subprocess.run(
            ["nvidia-smi", *arguments],
            capture_output=True,
            text=True,
            timeout=ANSWERS_WITHIN_S,
            check=False,
        )
    except (OSError, UnicodeDecodeError):
        return None
    if done.returncode != 0:
        return None
    return done.stdout.strip().splitlines()


def query_gpus(*fields: str) -> list[list[str]]:
    """The values of nvidia-smi's fields such as name, without units: a list for each GPU."""
    lines = ask_driver(f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
    rows = []
    for line in lines:
        values = line.split(",")
        rows.append([value.strip() for value in values])
    return rows
