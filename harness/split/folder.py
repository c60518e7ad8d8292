"""The folder that `split` writes: the groups to edit, a patch of each, the scripts of arms.

changes.yaml      the groups: merge, split, rename, move an atom, `always: true`
old/ new/         both scripts in normal form
patches/          what each group changes, on top of what it needs
split.html        the difference coloured by group
arms/             the scripts of arms, written as an experiment asks for them
experiment.yaml   for `ablate run`
"""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UserError
from harness.run.digests import short_digest
from harness.run.files import write_whole
from harness.run.guarded import read_bytes, read_text
from harness.split.arms import alone, atoms_on, measured, names_on, stands
from harness.split.changes import CHANGES, GroupsFile, changes_text
from harness.split.groups import ChangeGroup, Parts, take_apart
from harness.split.inseparable import inseparable
from harness.split.source import decoded
from harness.yamlfile import YamlFile

LONGEST = 100  # characters of the name of an arm's folder


@dataclass(frozen=True, kw_only=True)
class Folder:
    """A folder of `split`, read and checked."""

    path: Path
    script: str  # the file name of both
    old: str
    new: str
    parts: Parts

    @property
    def groups(self) -> tuple[ChangeGroup, ...]:
        return self.parts.groups

    @property
    def inseparable(self) -> tuple[str, ...]:
        """What no arm tells apart, in sentences."""
        return tuple(inseparable(self.parts))

    def text(self, chosen: Iterable[str]) -> str:
        """The script with these groups."""
        return self.parts.difference.text(atoms_on(self.groups, chosen))

    def stands(self, chosen: Collection[str]) -> bool:
        """Whether these groups can be an arm."""
        return stands(self.groups, chosen)

    def arm(self, chosen: Sequence[str]) -> Path:
        """The script of an arm with these groups, written where it was not yet."""
        everything = {group.name for group in measured(self.groups)}
        name = "+".join(sorted(chosen)) or "none"
        if set(chosen) == everything:
            name = "all"
        elif len(chosen) > len(everything) / 2:
            name = "all-" + "-".join(sorted(everything - set(chosen)))
        if len(name) > LONGEST:
            name = f"{name[:LONGEST]}-{short_digest(sorted(chosen))}"
        for module, content in self.modules():
            place(self.path, f"arms/{name}/{module}", content)
        return place(self.path, f"arms/{name}/{self.script}", self.text(chosen).encode())

    def modules(self) -> list[tuple[str, bytes]]:
        """What the script imports from its own folder: name and content."""
        root = self.path / "old"
        modules = []
        for file in sorted(root.rglob("*.py")):
            name = file.relative_to(root)
            if str(name) != self.script:
                modules.append((str(name), read_bytes(file, below=1 + len(name.parts))))
        return modules


def place(folder: Path, name: str, content: bytes) -> Path:
    """Write a file of a folder unless it holds that already; returns it.

    The folder may be a link, nothing in it: raises RefusedFileError there."""
    path, below = folder / name, len(Path(name).parts)
    with suppress(FileNotFoundError):
        if read_bytes(path, below=below) == content:
            return path
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, lambda file: file.write(content), below=below)
    return path


# ---------------------------------------------------------------- writing


def write_folder(
    path: Path, parts: Parts, old: str, new: str, *, script: str, modules: Mapping[str, bytes]
) -> Folder:
    """Write a new folder; raises UserError where there is one.

    path: of the folder; old, new: both scripts in normal form; script: their file name;
    modules: name -> content of what they import from their own folder."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{path}: is there already: choose another folder (-o), or move it away")
    for side, text in (("old", old), ("new", new)):
        place(path, f"{side}/{script}", text.encode())
        for name, content in modules.items():
            place(path, f"{side}/{name}", content)
    place(path, CHANGES, changes_text(parts.groups, parts.atoms, script=script).encode())
    folder = Folder(path=path, script=script, old=old, new=new, parts=parts)
    write_patches(folder)
    return folder


def rewritten(folder: Folder, groups: Iterable[ChangeGroup]) -> Path:
    """Write changes.yaml anew with these groups; returns where it lies as it was."""
    before = read_text(folder.path / CHANGES)
    n = 1
    while (folder.path / f"{CHANGES}.{n}").exists():
        n += 1
    kept = place(folder.path, f"{CHANGES}.{n}", before.encode())
    text = changes_text(groups, folder.parts.atoms, script=folder.script)
    place(folder.path, CHANGES, text.encode())
    return kept


def write_patches(folder: Folder) -> None:
    """What each group changes, on top of what it needs; of those that are no arms, too."""
    for group in folder.groups:
        needed = set(alone(folder.groups, group.name)) - {group.name}
        before = {atom for g in folder.groups if g.name in group.needs for atom in g.atoms}
        if group.name not in names_on(folder.groups, needed):
            before |= atoms_on(folder.groups, needed)
        patch = patch_of(
            folder.parts.difference.text(before),
            folder.parts.difference.text(before | set(group.atoms)),
            folder.script,
        )
        place(folder.path, f"patches/{group.name}.patch", patch.encode())
    names = {f"{group.name}.patch" for group in folder.groups}
    for path in (folder.path / "patches").glob("*.patch"):
        if path.name not in names:
            path.unlink()  # of a group that was merged or renamed; of a link the link itself


def patch_of(before: str, after: str, script: str) -> str:
    """The difference of two texts as a patch of the script."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True),
        after.splitlines(keepends=True),
        f"a/{script}",
        f"b/{script}",
    )
    return "".join(lines)


# ---------------------------------------------------------------- reading


def read_folder(path: Path) -> Folder:
    """Read a folder and check its groups; raises UserError with the line that is wrong."""
    file = YamlFile(path / CHANGES, told_in="docs/split.md")
    read_bytes(path / CHANGES, below=1)  # which refuses a link
    script = file.data.get("script")
    if not isinstance(script, str) or not re.fullmatch(r"[\w.-]+", script):
        raise UserError(f"{file.where('script')}: script must be the file name of both scripts")
    texts = []
    for side in ("old", "new"):
        place_of = path / side / script
        if not place_of.is_file():
            raise UserError(f"{place_of}: is not there: `ablate split` writes the folder anew")
        texts.append(decoded(read_bytes(place_of, below=2), str(place_of)))
    parts = take_apart(*texts)
    groups = GroupsFile(file, parts).groups()
    with_own = Parts(
        difference=parts.difference, atoms=parts.atoms, edges=parts.edges, groups=groups
    )
    folder = Folder(path=path, script=script, old=texts[0], new=texts[1], parts=with_own)
    everything = [group.name for group in measured(groups)]
    if folder.text(everything) != folder.new:
        raise UserError(
            f"{file.where('groups')}: all groups together do not make NEW: a group of the kind "
            "neutral or support has atoms that no other group needs: give it another kind"
        )
    return folder
