"""Files of a folder on another machine, by rsync over ssh.

The machine needs a shell and rsync, nothing of ours. Programs and keys are those of the user's own
ssh; RSYNC_RSH, which rsync reads, names another command in its place.
"""

import atexit
import os
import shlex
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path

from harness.errors import visible
from harness.push.errors import PushError
from harness.push.remote import FilesOfRuns
from harness.run.digests import text_digest

PATIENT = (  # never a question, and an end where nobody answers
    *("-o", "BatchMode=yes", "-o", "ConnectTimeout=20"),
    *("-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4"),
)
SILENCE_S = 60  # after which rsync gives up
ANSWERS_WITHIN_S = 300  # of one command there
NO_COMMAND = 127  # how a shell ends that finds no program
FOLDERS = "runs experiments code environments"
# the runs of a folder beside them, named on the input, are renamed into their places
PLACE = """
cd {beside} || exit 1
while read -r run; do
  if [ -f "../$run/result.json" ]; then rm -rf "$run"; continue; fi
  if [ -e "../$run" ]; then
    for owner in "../$run"/attempts/*/owner.json; do
      if [ -e "$owner" ]; then echo "$run"; continue 2; fi
    done
    mkdir -p ../../aside && mv "../$run" "../../aside/$run-{token}-$$" || exit 1
  fi
  mv "$run" "../$run" || exit 1
done
cd .. && rmdir {beside_name} 2>/dev/null
true
"""


class SshFiles:
    """`Files` of HOST:FOLDER."""

    def __init__(self, host: str, folder: str, port: int | None) -> None:
        self.host, self.folder = host, folder
        self.name = f"{host}:{port or ''}:{folder}"
        shell = shlex.split(os.environ.get("RSYNC_RSH") or "ssh")
        of_port = [] if port is None else ["-p", str(port)]
        self.shell = [*shell, *PATIENT, *of_port]
        self.shared: subprocess.Popen[bytes] | None = None

    def connect(self) -> None:
        """Share a connection, which ends with this process; without it each command has its own."""
        if self.shared is None:
            folder = tempfile.mkdtemp(prefix="ablate-")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            self.shell += ["-S", f"{folder}/ssh"]
        elif self.shared.poll() is None:
            return
        self.shared = subprocess.Popen(
            [*self.shell, "-M", self.host, "cat"],  # which reads until this process is gone
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def open(self) -> None:
        _said(["rsync", "--version"], "")
        make = f"mkdir -p {self.folder} && cd {self.folder} && mkdir -p {FOLDERS}"
        self._there(f"{make} && : >runs/.sent-probe && rm runs/.sent-probe && rsync --version")

    def fitting(self, *patterns: str) -> list[str]:
        each = f'for f in {" ".join(patterns)}; do if [ -f "$f" ]; then echo "$f"; fi; done'
        return self._there(f"cd {self.folder} && {each}").splitlines()

    def get(self, names: Sequence[str], into: Path) -> None:
        if names:
            self._rsync(names, f"{self.host}:{self.folder}/", f"{into}/")

    def put(self, root: Path, names: Sequence[str]) -> None:
        if names:
            self._rsync(names, f"{root}/", f"{self.host}:{self.folder}/")

    def put_runs(self, runs: Path, files: FilesOfRuns) -> list[str]:
        if self.shared is not None:
            self.connect()  # again, where it is lost
        token = text_digest(f"{socket.gethostname()} {runs.resolve()}")
        beside = f"{self.folder}/runs/.sent-{token}"  # the same in the next try, which goes on
        names = []
        for run_id, of_run in files.items():
            names += [f"{run_id}/{name}" for name in of_run]
        self._rsync(names, f"{runs}/", f"{self.host}:{beside}/")
        place = PLACE.format(beside=beside, beside_name=f".sent-{token}", token=token)
        return self._there(place, "".join([f"{run_id}\n" for run_id in files])).split()

    def set_aside(self, run_id: str) -> None:
        aside = f"aside/{run_id}-{uuid.uuid4().hex[:8]}"
        self._there(f"cd {self.folder} && mkdir -p aside && mv runs/{run_id} {aside}")

    def _there(self, script: str, given: str = "") -> str:
        return _said([*self.shell, self.host, script], given, timeout_s=ANSWERS_WITHIN_S)

    def _rsync(self, names: Sequence[str], source: str, place: str) -> None:
        command = ["rsync", "-t", "-s", "--partial-dir=.partial", f"--timeout={SILENCE_S}"]
        command += ["-e", shlex.join(self.shell), "--from0", "--files-from=-"]
        _said([*command, source, place], "\0".join(names))


def _said(command: Sequence[str], given: str, *, timeout_s: float | None = None) -> str:
    """What a program prints; raises PushError with the last line of its complaint."""
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except FileNotFoundError:
        raise PushError(f"{command[0]} is not installed here") from None
    except subprocess.TimeoutExpired:
        raise PushError(f"{command[0]} did not end within {timeout_s:g} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["it says nothing"]
        told = lines[0] if command[0] == "rsync" else lines[-1]
        if done.returncode == NO_COMMAND and "rsync" in told:
            told = "rsync is not installed there"
        raise PushError(visible(f"{command[0]}: {told.strip()}"))
    return done.stdout
