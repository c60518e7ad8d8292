"""NVIDIA's own tool, nvidia-smi: the one place that calls it."""

import subprocess

ANSWERS_WITHIN_S = 20


def ask_driver(*arguments: str) -> list[str]:
    """The lines that nvidia-smi prints; none where it is missing, fails or does not answer."""
    try:
        done = subprocess.run(
            ["nvidia-smi", *arguments],
            capture_output=True,
            text=True,
            timeout=ANSWERS_WITHIN_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return []
    if done.returncode != 0:
        return []
    return done.stdout.strip().splitlines()


def query_gpus(*fields: str) -> list[list[str]]:
    """The values of nvidia-smi's fields such as name, without units: a list for each GPU."""
    lines = ask_driver(f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
    rows = []
    for line in lines:
        values = line.split(",")
        rows.append([value.strip() for value in values])
    return rows
