"""The clone in which sabotages are made: the repository as the work tree is now, with corpora of its own."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "mutation"
TREE = BUILD / "tree"
FATES = BUILD / "fates.json"  # of the last run
CODE = ("harness", "model", "optim", "reports")


def git(*arguments: str, at: Path = ROOT) -> str:
    done = subprocess.run(["git", *arguments], cwd=at, check=True, capture_output=True, text=True)
    return done.stdout


def code_files(paths: Sequence[str]) -> list[str]:
    """The tracked Python files under some paths, links not followed.

    Raises SystemExit for a path with none.
    """
    folders, found = tuple(f"{folder}/" for folder in CODE), set[str]()
    for path in paths:
        files = [f for f in git("ls-files", "--", path).splitlines() if f.endswith(".py")]
        code = [f for f in files if f.startswith(folders)]
        if not code:
            raise SystemExit(
                f"{path}: no code is there; name folders or files below {', '.join(folders)}"
            )
        found.update(code)
    return sorted(found)


def make_tree() -> None:
    """A clone of the repository as the work tree is now, with a copy of its corpora."""
    shutil.rmtree(TREE, ignore_errors=True)
    BUILD.mkdir(parents=True, exist_ok=True)
    git("clone", "--quiet", "--shared", str(ROOT), str(TREE))
    for name in git("ls-files", "--cached", "--others", "--exclude-standard", "-z").split("\0"):
        ours, theirs = ROOT / name, TREE / name
        if name and not ours.exists() and not ours.is_symlink():
            theirs.unlink(missing_ok=True)
        elif name and not ours.is_symlink():
            theirs.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ours, theirs)
    if (ROOT / "data").exists():
        shutil.copytree(ROOT / "data", TREE / "data")


class Sabotaged:
    """Files of the clone changed for a while, so dated that no compiled file is taken for another's."""

    def __init__(self) -> None:
        self.made = 0

    @contextmanager
    def as_text(self, file: Path, text: str) -> Iterator[None]:
        self.made += 1
        source, was = file.read_bytes(), file.stat()
        file.write_text(text, encoding="utf-8")
        os.utime(file, (self.made, self.made))  # a second of 1970 for each
        try:
            yield
        finally:
            file.write_bytes(source)
            os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))


class Corpora:
    """The clone's corpora, put back where a sabotage has spoiled them."""

    def __init__(self) -> None:
        self.kept = BUILD / "data"
        shutil.rmtree(self.kept, ignore_errors=True)
        if (TREE / "data").exists():
            shutil.copytree(TREE / "data", self.kept)
        self.state = self.read()

    def read(self) -> list[tuple[str, int, int]]:
        files = [p for p in sorted((TREE / "data").rglob("*")) if p.is_file()]
        return [(str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in files]

    def restore(self) -> None:
        if self.read() != self.state:
            shutil.rmtree(TREE / "data", ignore_errors=True)
            if self.kept.exists():
                shutil.copytree(self.kept, TREE / "data")
            self.state = self.read()
