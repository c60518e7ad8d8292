"""What came of a run on a node that does not see the results folder, brought into it."""

import io
import tempfile
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

from harness.run.guarded import IN_FOLDER, copy_file
from harness.run.spec import RESULT_STATUSES
from harness.runner.messages import WorkerEvent
from harness.store.merge import Merged, merge_run
from harness.store.store import Store


def packed(folder: Path) -> bytes:
    """A folder as an archive."""
    archive = io.BytesIO()
    with ZipFile(archive, "w", ZIP_DEFLATED, compresslevel=1, strict_timestamps=False) as file:
        for path in folder.rglob("*"):
            file.write(path, path.relative_to(folder))
    return archive.getvalue()


def take_in(store: Store, run_id: str, event: WorkerEvent, files: bytes, node: str) -> WorkerEvent:
    """How the run ended, once its files are here; every digest is checked before it counts.

    run_id, event: the run, and how it ended there. files: the node's results folder, as an
    archive. node: its name.
    """
    with tempfile.TemporaryDirectory(prefix="ablate-ray-") as folder:
        with ZipFile(io.BytesIO(files)) as archive:
            archive.extractall(folder)
        theirs, done = Store(Path(folder)), Merged()
        if event.status in RESULT_STATUSES:
            merge_run(theirs, store, run_id, done)
            if not done.problems:
                return event
            event = WorkerEvent(status="failed", reason="; ".join(done.problems))
        store.note_lost(run_id, status=event.status, reason=event.reason or "", node=node)
        log, place = theirs.directory(run_id) / "log.txt", store.directory(run_id) / "log.txt"
        if log.is_file() and not place.exists():
            copy_file(log, place, below=IN_FOLDER)
        return event
