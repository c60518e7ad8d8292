"""TensorBoard, by the writer that torch brings."""

from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from harness.track.follow import Ending, Numbers, TrackedRun
from harness.track.trackers import own_folder


class TensorBoard:
    """An event file a run, in `tensorboard/` of the experiment's folder."""

    def __init__(self, experiment: str, folder: Path) -> None:
        self._folder = own_folder(folder / "tensorboard", below=3)
        self._open: dict[str, SummaryWriter] = {}
        self.where = f"tensorboard --logdir {self._folder}"

    def begin(self, run: TrackedRun) -> None:
        """Open its event file."""
        name = run.label.replace("/", "_")
        writer = SummaryWriter(str(own_folder(self._folder / name, below=4)))
        writer.add_text("config", "\n".join(f"    {k}: {v}" for k, v in run.config.items()))
        self._open[run.key] = writer

    def log(self, run: TrackedRun, step: int, numbers: Numbers) -> None:
        """A scalar for each number."""
        for name, value in numbers.items():
            self._open[run.key].add_scalar(name, value, step)

    def end(self, run: TrackedRun, outcome: Ending) -> None:
        """Its outcome as scalars below `result/`, its status as text."""
        writer = self._open.pop(run.key)
        writer.add_text("status", f"{outcome.status}: {outcome.reason or ''}")
        for name, value in outcome.numbers.items():
            writer.add_scalar(f"result/{name}", value)
        writer.close()

    def flush(self) -> None:
        """Write what is open."""
        for writer in self._open.values():
            writer.flush()

    def close(self) -> None:
        """Close what is open."""
        for writer in self._open.values():
            writer.close()
