"""Which results of a folder are sound: what did not change since it was found so is not read."""

from harness.run.remembered import Remembered
from harness.run.results import examine, stats_of
from harness.store.store import Store


class VerifiedResults:
    """What a results folder's cache knows; `status` asks it, `save` keeps what was learned."""

    def __init__(self, store: Store) -> None:
        self.store, self.known = store, Remembered(store.root)
        self.save = self.known.save

    def status(self, run_id: str) -> tuple[str | None, str | None]:
        """A run's status if its result is sound, and what was wrong with it (see `Store.repair`).

        None where it has none.
        """
        run = f"{self.store.runs}/{run_id}"
        try:
            stats = stats_of(run)  # before the files are read: a change meanwhile makes them others
        except OSError:
            return self._repaired(run_id)
        status = self.known.status(run_id, stats, whole=False)
        if status is not None:
            return status, None
        result, wrong = examine(run, run_id, stats=stats)
        if result is None or wrong:
            return self._repaired(run_id)
        self.known.learn(run_id, result.status, stats, whole=False)
        return result.status, None

    def _repaired(self, run_id: str) -> tuple[str | None, str | None]:
        result, wrong = self.store.repair(run_id)
        return None if result is None else result.status, wrong
