"""The trackers by name; the library of one is imported when it is asked for."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from harness.errors import UserError, how_to_install, near
from harness.run.guarded import check_folder
from harness.track.follow import Tracker


@dataclass(frozen=True, kw_only=True)
class TrackerRow:
    """A tracker: the library that must be there, and the class that tells it."""

    library: str
    module: str
    kind: str

    @property
    def make(self) -> Callable[[str, Path], Tracker]:
        """Makes it, of an experiment's name and its folder."""
        made: Callable[[str, Path], Tracker] = getattr(import_module(self.module), self.kind)
        return made


TRACKERS = {
    "tensorboard": TrackerRow(
        library="tensorboard", module="harness.track.to_tensorboard", kind="TensorBoard"
    ),
    "wandb": TrackerRow(library="wandb", module="harness.track.to_wandb", kind="Wandb"),
    "mlflow": TrackerRow(library="mlflow", module="harness.track.to_mlflow", kind="Mlflow"),
}


def tracker_row(name: str) -> TrackerRow:
    """The row of a name; raises UserError where there is none, or its library is missing."""
    row = TRACKERS.get(name)
    if row is None:
        raise UserError(f"no tracker '{name}'{near(name, TRACKERS)}")
    if find_spec(row.library) is None:
        mend = how_to_install("trackers")
        raise UserError(f"{name}: the library {row.library} is not installed: {mend}")
    return row


def own_folder(place: Path, *, below: int) -> Path:
    """A folder in an experiment's, for what a client writes; raises OSError where it is a link.

    below: how many names at the end of its path lie in the results folder.
    """
    place.mkdir(parents=True, exist_ok=True)
    check_folder(place, below=below)
    return place
