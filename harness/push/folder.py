"""A results folder on a disk that this machine sees."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from harness.push.errors import PushError
from harness.run.guarded import IN_ROOT, RefusedFileError, folders_in
from harness.store.errors import ResultsError
from harness.store.merge import Merged, merge, merge_plans, merge_run, what_is_wrong
from harness.store.store import Store


@contextmanager
def told() -> Iterator[None]:
    """Whatever goes wrong with the folder is a PushError of one line."""
    try:
        yield
    except ResultsError as error:
        raise PushError(error.reason) from None
    except RefusedFileError as error:
        raise PushError(str(error)) from None
    except OSError as error:
        raise PushError(str(error.strerror or error)) from None


class FolderPlace:
    """Runs are copied beside their place, verified, and renamed."""

    def __init__(self, root: Path) -> None:
        self.store = Store(root)

    def open(self) -> None:
        with told():
            Store.create(self.store.root)

    def connect(self) -> None:
        """There is nothing to keep open."""

    def runs(self) -> set[str]:
        """Those whose result is sound: another one is set aside by the run that is sent."""
        names = set()
        with told():
            for name in folders_in(self.store.runs, below=IN_ROOT):
                run = self.store.directory(name)
                if self.store.is_done(name) and what_is_wrong(run) is None:
                    names.add(name)
        return names

    def send(self, store: Store, run_ids: Sequence[str]) -> Merged:
        sent = Merged()
        with told():
            for run_id in run_ids:
                merge_run(store, self.store, run_id, sent)
        return sent

    def send_plans(self, store: Store) -> Merged:
        sent = Merged()
        with told():
            merge_plans(store.root, self.store, sent)
        return sent

    def bring(self, store: Store, *, mend: bool = False) -> Merged:
        """What is not sound there gives way to what is sent, mended or not."""
        with told():
            return merge(self.store.root, store)
