"""The one results folder: a small disk of its own, what was seen of finished runs, and what must hold of them."""

import contextlib
import hashlib
import io
import os
import random
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from harness.__main__ import main as ablate
from harness.errors import UserError
from harness.run.read import read_lines
from harness.run.results import DIGESTED, examine
from harness.store.plans import read_plan
from tests.fake_matrix import wait_for

MIB = 1 << 20
SIZE_MIB = 1024
LOOK_S = 0.3  # between two looks for new results
Seals = dict[str, str]  # file -> digest of its bytes


class Disk:
    """A file system of its own, which can be full or read-only; a plain folder where this user may not mount."""

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir()
        self.own = mount("-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "tmpfs", str(place))

    def leave(self, free: int) -> None:
        """So many bytes more can be written."""
        facts = os.statvfs(self.place)
        used = (facts.f_blocks - facts.f_bfree) * facts.f_frsize
        assert mount("-o", f"remount,size={used + free}", str(self.place))

    def empty(self) -> None:
        assert mount("-o", f"remount,size={SIZE_MIB}m", str(self.place))

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """For everybody who looks a name up; a file that is open stays so."""
        folder = str(self.place)
        assert mount("--bind", folder, folder)
        try:
            assert mount("-o", "remount,ro,bind", folder)
            yield
        finally:
            unmount(folder)

    def give_back(self) -> None:
        if self.own:
            unmount(str(self.place))


def mount(*options: str) -> bool:
    return subprocess.run(["mount", *options], capture_output=True, check=False).returncode == 0


def unmount(folder: str) -> None:
    subprocess.run(["umount", "-l", folder], check=True)


class Seen:
    """What finished runs held when they were first seen, while other processes go on with the folder."""

    def __init__(self, results: Path) -> None:
        self.runs = results / "runs"
        self.seals: dict[str, Seals] = {}
        self.harmed: set[str] = set()  # by the loop itself: those have another result to come
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def _watch(self) -> None:
        while not self.ended.wait(LOOK_S):
            self.look()

    def look(self) -> None:
        """Remember what is new."""
        with self.lock, suppress(FileNotFoundError):
            for name in os.listdir(self.runs):
                if name not in self.seals and name not in self.harmed:
                    self._remember(name)

    def _remember(self, name: str) -> None:
        with suppress(OSError):  # no result yet
            (self.runs / name / "result.json").stat()
            self.seals[name] = seals(self.runs / name)

    def harm(self, run: Path) -> None:
        """The loop is about to damage a finished run."""
        with self.lock:
            self.harmed.add(run.name)
            self.seals.pop(run.name, None)

    def healed(self) -> set[str]:
        """The runs that the loop has damaged: they have been made again."""
        with self.lock:
            harmed, self.harmed = self.harmed, set()
        return harmed

    def changed(self, names: set[str] | None = None) -> list[str]:
        """Runs, of these or of all, whose files are not those that were first seen."""
        with self.lock:
            known = {n: s for n, s in self.seals.items() if names is None or n in names}
        return [n for n, s in known.items() if seals(self.runs / n) != s]

    def end(self) -> None:
        self.ended.set()
        self.thread.join()


def seals(run: Path) -> Seals:
    """The digests of a finished run's files; of those that are not there, none."""
    found = {}
    for name in ("result.json", *DIGESTED, "log.txt"):
        with suppress(FileNotFoundError):
            found[name] = hashlib.sha256((run / name).read_bytes()).hexdigest()
    return found


def runs_of(results: Path, name: str) -> dict[tuple[str, int], str]:
    """By arm and seed: the runs of an experiment; none where it has no plan yet."""
    try:
        plan = read_plan(results, name)
    except UserError:  # the disk was full: it is written again
        return {}
    return {} if plan is None else {(run.arm, run.seed or 0): run.run_id for run in plan.runs}


def losses(results: Path, runs: dict[tuple[str, int], str]) -> dict[tuple[str, int], str]:
    """By arm and seed: the loss of a run that is sound, and its curve, to the last digit."""
    found = {}
    for key, run_id in runs.items():
        run = results / "runs" / run_id
        result, wrong = examine(run, run_id)
        rows = read_lines(run / "metrics.jsonl")
        curve = [
            (row["kind"], row["step"], row.get("val_loss", row.get("train_loss"))) for row in rows
        ]
        value = None if result is None else (result.status, result.val_loss, result.steps)
        found[key] = f"{wrong or value} {curve}"
    return found


def n_finished(run: Path) -> tuple[int, int]:
    """(results, attempts that say they finished): the second is 0 where who wrote the result died of it."""
    rows = read_lines(run / "attempts.jsonl")
    return int((run / "result.json").exists()), sum(r.get("status") == "finished" for r in rows)


def leftovers(results: Path) -> list[str]:
    """Claims and half-written files."""
    return [
        f"{folder}/{name}"
        for folder, folders, files in os.walk(results)
        for name in (*folders, *files)
        if name.startswith(".") or name == "owner.json"
    ]


def strays(mark: str) -> list[int]:
    """Processes that have this in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (path / "environ").read_bytes() and int(path.name) != os.getpid():
                found.append(int(path.name))
    return found


def none_strays(mark: str) -> list[int]:
    """Those that are still there when all have had the time to go."""
    with suppress(AssertionError):
        wait_for(lambda: not strays(mark), 60, every_s=0.2)
    return strays(mark)


def said_by(*words: object) -> tuple[object, str]:
    """A reading command's exit code, and all that it printed, in this process."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            ablate([str(word) for word in words])
        except SystemExit as ended:
            return ended.code or 0, out.getvalue()
    return 0, out.getvalue()


def cut(path: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content) or 1)])


def flip(path: Path, rng: random.Random) -> None:
    """One digit is another one."""
    content = path.read_bytes()
    at = rng.choice([i for i, byte in enumerate(content) if byte in b"0123456789"])
    path.write_bytes(content[:at] + str((content[at] - 47) % 10).encode() + content[at + 1 :])


def remove(path: Path, rng: random.Random) -> None:
    path.unlink()


HARMS = (cut, flip, remove)
