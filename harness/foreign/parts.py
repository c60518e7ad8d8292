"""Arms that are parts of a difference: the groups of a folder that `ablate split` wrote."""

from collections.abc import Sequence
from pathlib import Path

from harness.errors import UserError
from harness.run.document import Content, Document
from harness.split.arms import measured
from harness.split.folder import CHANGES, Folder, read_folder


def parts_of(trainer: Document, changes: Document, folder: Path) -> Folder | None:
    """The folder that `parts` names; raises UserError where it does not fit.

    trainer, changes: of the experiment's file; folder: the file's. None: it names none."""
    text = trainer.get("parts")
    if text is None:
        return None
    path = folder / str(text)
    if path.name == CHANGES:
        path = path.parent
    if not (path / CHANGES).is_file():
        raise UserError(
            f"parts {text}: no {CHANGES} in {path}: `ablate split` writes such a folder"
        )
    if changes:
        raise UserError(f"changes: those of {path / CHANGES} are the changes: leave them out")
    return read_folder(path)


def sections(parts: Folder) -> dict[str, Content]:
    """The changes of an experiment: the groups that are measured."""
    return {group.name: {} for group in measured(parts.groups)}


def script_of(parts: Folder, changes: Sequence[str]) -> Path:
    """The script of an arm; raises UserError for groups that cannot stand without others."""
    if not parts.stands(changes):
        raise UserError(
            f"{', '.join(changes)}: cannot stand together without what they need, or with what "
            f"they conflict with: see {parts.path / CHANGES}"
        )
    return parts.arm(changes)
