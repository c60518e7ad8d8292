"""A foreign trainer's code: the script, the files it imports, its patches; as they are on disk or at a git ref."""

import ast
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from harness.errors import UserError
from harness.provenance.code import Code
from harness.run.digests import file_digest, short_digest

MAX_FILE = 20_000_000  # bytes of one file of code: more is data, and data is linked
STRIPS = (1, 0, 2, 3, 4, 5)  # leading folders of the paths in a patch, tried in this order


# ---------------------------------------------------------------- where files come from


@dataclass(frozen=True, kw_only=True)
class Tree:
    """A folder as it is on disk, or, with a commit, as git knows it there. Names are relative to the root, with slashes."""

    root: Path
    commit: str | None = None

    def read(self, name: str) -> bytes | None:
        """A file's content, None where there is no such file."""
        if self.commit is not None:
            return git(self.root, "cat-file", "blob", f"{self.commit}:./{name}")
        path = self.root / name
        return path.read_bytes() if path.is_file() and path.stat().st_size <= MAX_FILE else None

    def names(self, name: str) -> list[str]:
        """The files under a folder, or the file itself; none where there is neither."""
        if self.commit is not None:
            listed = git(self.root, "ls-tree", "-r", "-z", "--name-only", self.commit, "--", name)
            return [os.fsdecode(n) for n in (listed or b"").split(b"\0") if n]
        path = self.root / name
        found = [p for p in sorted(path.rglob("*")) if p.is_file() and "__pycache__" not in p.parts] if path.is_dir() else [path]
        return [os.path.relpath(p, self.root) for p in found if p.is_file()]


def git(repo: Path, *arguments: str) -> bytes | None:
    """What git prints, None if it fails; raises UserError where there is no git."""
    try:
        done = subprocess.run(["git", "-C", str(repo), *arguments], capture_output=True, check=False)
    except FileNotFoundError:
        raise UserError("git is not installed: refs and patches need it") from None
    return done.stdout if done.returncode == 0 else None


def commit_of(repo: Path, ref: str) -> str | None:
    """The commit that a ref names, None if it names none."""
    found = git(repo, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    return found.decode().strip() if found else None


# ---------------------------------------------------------------- which files belong to a script


def collect(script: str, tree: Tree, *, where: str, extra: Iterable[str] = ()) -> Code:
    """The script, every module of the tree that it imports, directly or not, and what else is named."""
    files: dict[str, bytes] = {}
    for name in (script, *extra):
        found = {n: content for n in tree.names(name) if (content := tree.read(n)) is not None}
        if not found or any(n.startswith("..") for n in found):
            raise UserError(f"{where}: no file {name} in {tree.root}: name a file or folder beside the script; data is linked")
        files |= found
    folder, waiting = str(PurePosixPath(script).parent), [n for n in files if n.endswith(".py") or n == script]
    while waiting:
        name = waiting.pop()
        inside = PurePosixPath(name)
        inside = inside.relative_to(folder) if inside.is_relative_to(folder) else inside
        for module in _imported(files[name], inside):
            for end in (".py", "/__init__.py"):
                path = str(PurePosixPath(folder) / f"{module}{end}")
                if path not in files and (content := tree.read(path)) is not None:
                    files[path] = content
                    waiting.append(path)
    return Code(script=script, files=files)


def _imported(content: bytes, name: PurePosixPath) -> Iterator[str]:
    """Paths, without .py, of the modules that a file may mean: with every package on the way and every name it takes."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            dotted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = name.parts[: len(name.parts) - node.level] if node.level else ()
            base = ".".join((*above, *([node.module] if node.module else [])))
            dotted = [base, *(f"{base}.{alias.name}".strip(".") for alias in node.names if alias.name != "*")]
        else:
            continue
        for module in dotted:
            parts = [p for p in module.split(".") if p]
            yield from ("/".join(parts[:n]) for n in range(1, len(parts) + 1))


# ---------------------------------------------------------------- patches


def patched(code: Code, patches: Iterable[Path]) -> Code:
    """The code with the patches applied in order. Raises UserError for one that does not apply."""
    for patch in patches:
        if not patch.is_file():
            raise UserError(f"{patch}: no such patch")
        with tempfile.TemporaryDirectory(prefix="ablate-patch-") as folder:
            for name, content in code.files.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            wrong = _apply(patch.resolve(), Path(folder))
            files = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(Path(folder).rglob("*")) if p.is_file()}
        if wrong is not None or files == code.files:
            reason = wrong or "it changes none of the files"
            raise UserError(
                f"{patch}: does not apply to {code.script}: {reason}: make it with `diff -u` or `git diff` from the script"
            )
        code = Code(script=code.script, files=files)
    if code.script not in code.files:
        raise UserError(f"{code.script}: a patch removed it: there is nothing to run")
    return code


def _apply(patch: Path, folder: Path) -> str | None:
    """Apply a patch in a folder, however deep the paths in it are; returns why not."""
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent), "GIT_DIR": str(folder / "no-repository")}
    reason = None
    for strip in STRIPS:
        command = ["git", "apply", f"-p{strip}", "--whitespace=nowarn", str(patch)]
        try:
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise UserError("git is not installed: refs and patches need it") from None
        if done.returncode == 0:
            return None
        reason = reason or (done.stderr.strip().splitlines() or ["git apply refuses it"])[0].removeprefix("error: ")
    return reason


def data_fingerprint(paths: Iterable[Path]) -> str:
    """64 hex digits of the data that is linked: every file's name and size, and the content of small ones."""
    seen = []
    for path in paths:
        for p in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if p.is_file():
                size = p.stat().st_size
                seen.append([os.path.relpath(p, path), size, file_digest(p) if size <= 1 << 20 else None])
    return short_digest(seen) * 4
