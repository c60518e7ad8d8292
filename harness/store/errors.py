"""What goes wrong with a results folder."""

from pathlib import Path

from harness.errors import UserError
from harness.run.guarded import RefusedFileError


class ResultsError(UserError):
    """The results folder cannot be written: nothing can go on, nothing that is there is lost."""

    def __init__(self, root: Path, error: OSError) -> None:
        self.reason = str(error.strerror or error)
        if isinstance(error, RefusedFileError):  # neither rights nor space mend it
            super().__init__(f"{error}: put it there itself, or name another with --results")
            return
        what = f"results folder {root}: {error.strerror or error}"
        super().__init__(
            f"{what}: make it writable, free some space, or name another with --results"
        )
