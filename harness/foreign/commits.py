"""A foreign trainer's code as git knows it: at a commit, and with patches applied."""

import os
import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UserError
from harness.foreign.collect import Tree
from harness.provenance.code import Code
from harness.provenance.data import files_under
from harness.provenance.git import git, run_git

HEAD = re.compile(r"^(--- ([^\t\n]+)[^\n]*\n\+\+\+ ([^\t\n]+)[^\n]*\n@@)", re.MULTILINE)
STRIPS = (1, 0, 2, 3, 4, 5)  # leading folders of the paths in a patch, tried in this order


@dataclass(frozen=True, kw_only=True)
class CommittedTree(Tree):
    """A folder of a repository as it was at a commit."""

    commit: str

    def read(self, name: str) -> bytes | None:
        """A file's content, None where there is no such file."""
        return git(self.root, "cat-file", "blob", f"{self.commit}:./{name}")

    def names(self, name: str) -> list[str]:
        """The files under a folder, or the file itself; none where there is neither."""
        listed = git(self.root, "ls-tree", "-r", "-z", "--name-only", self.commit, "--", name)
        return [os.fsdecode(name) for name in (listed or b"").split(b"\0") if name]


def commit_of(repo: Path, ref: str) -> str | None:
    """The commit that a ref names, None if it names none."""
    options = ("--verify", "--quiet", "--end-of-options")
    commit = git(repo, "rev-parse", *options, f"{ref}^{{commit}}")
    if not commit:
        return None
    return commit.decode().strip()


def commits_of(repo: Path, range_: str, script: str) -> list[str]:
    """The commits in a range (`A..B`) that change a script, the latest first."""
    listed = git(repo, "rev-list", "--end-of-options", range_, "--", script)
    return (listed or b"").decode().split()


def patched(code: Code, patches: Iterable[Path]) -> Code:
    """The code with the patches applied in order; raises UserError for one that does not apply."""
    for patch in patches:
        if not patch.is_file():
            raise UserError(f"{patch}: no such patch")
        with tempfile.TemporaryDirectory(prefix="ablate-patch-") as folder:
            files, reason = _patched_in(Path(folder), code, patch)
        if reason is None and files == code.files:
            reason = "it changes none of the files"
        if reason is not None:
            raise UserError(
                f"{patch}: does not apply to {code.script}: {reason}: "
                "make it with `diff -u` or `git diff` from the script"
            )
        code = Code(script=code.script, files=files)
    if code.script not in code.files:
        raise UserError(f"{code.script}: a patch removed it: there is nothing to run")
    return code


def _patched_in(folder: Path, code: Code, patch: Path) -> tuple[dict[str, bytes], str | None]:
    """The files after a patch, applied in an empty folder, and why it does not apply."""
    for name, content in code.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    reason = _apply(patch.resolve(), folder)
    if reason is not None:
        named = _named_after(patch.read_text(encoding="utf-8", errors="surrogateescape"), code)
        if named is not None:
            with tempfile.TemporaryDirectory(prefix="ablate-named-") as beside:
                again = Path(beside) / patch.name
                again.write_text(named, encoding="utf-8", errors="surrogateescape")
                reason = _apply(again, folder) and reason
    files = {str(path.relative_to(folder)): path.read_bytes() for path in files_under(folder)}
    return files, reason


def _named_after(text: str, code: Code) -> str | None:
    """The patch of two files of other names, as `diff -u old.py new.py` has them, with the code's.

    A head's file is the one of its first name, else of its second; of a patch of one file, the
    script. None for a patch by git, and where a head fits no file."""
    heads = HEAD.findall(text)
    if not heads or "diff --git " in text:
        return None
    by_name = {Path(name).name: name for name in code.files}
    named = text
    for head, old, new in heads:
        code_name = by_name.get(Path(old).name) or by_name.get(Path(new).name)
        if code_name is None and len(heads) == 1:
            code_name = code.script
        if code_name is None:
            return None
        named = named.replace(head, f"--- a/{code_name}\n+++ b/{code_name}\n@@", 1)
    return named


def _apply(patch: Path, folder: Path) -> str | None:
    """Apply a patch in a folder, however deep the paths in it are; returns why not."""
    nowhere = {
        "GIT_CEILING_DIRECTORIES": str(folder.parent),
        "GIT_DIR": str(folder / "no-repository"),
    }
    reason = None
    for strip in STRIPS:
        options = ("apply", f"-p{strip}", "--whitespace=nowarn", "--", str(patch))
        done = run_git(folder, *options, variables=nowhere)
        if done.returncode == 0:
            return None
        if reason is None:
            said = done.stderr.decode("utf-8", "replace").strip() or "git apply refuses it"
            reason = said.splitlines()[0].removeprefix("error: ")
    return reason
