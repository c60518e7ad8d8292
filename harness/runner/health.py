"""Which places fail runs that do well elsewhere: devices of a node, nodes of a cluster.

A place that failed two runs in a row, each at once, is kept out of use while one of the two is
tried elsewhere. If that does well the place is retired for the rest of the call, and the other run
is tried again as well; if it fails too the fault is the runs', and the place is used again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.run.files import now_iso
from harness.run.retired import Retired, note_retired
from harness.run.spec import RESULT_STATUSES

AT_ONCE_S = 60.0  # a failure after a longer time is the run's own
IN_A_ROW = 2  # such failures, after which their devices are doubted
DeviceNames = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What follows from how a run ended."""

    again: tuple[str, ...] = ()  # names of runs that are to be tried again, elsewhere
    kept_out: DeviceNames | None = None  # until one of these runs tells
    freed: DeviceNames | None = None
    retired: DeviceNames | None = None
    failed: tuple[str, ...] = ()  # there, by name


NOTHING = Finding()


@dataclass(kw_only=True)
class Health:
    """What one call has seen of its places."""

    # runs that failed at once
    in_a_row: dict[DeviceNames, list[str]] = field(default_factory=dict)
    # run tried elsewhere -> the suspect
    probes: dict[str, DeviceNames] = field(default_factory=dict)
    probed: set[str] = field(default_factory=set)
    retired: set[DeviceNames] = field(default_factory=set)

    def ended(
        self, run_id: str, place: DeviceNames, *, status: str, seconds: float, can_spare: bool
    ) -> Finding:
        """A run ended after so many seconds. can_spare: there are other places for every run.

        run_id, status: of the run, how it ended.
        """
        suspect = self.probes.pop(run_id, None)
        if suspect is not None:
            return self._told(run_id, suspect, did_well=status in RESULT_STATUSES)
        if status in RESULT_STATUSES:
            self.in_a_row.pop(place, None)
        if status != "failed" or seconds > AT_ONCE_S:
            return NOTHING
        if place in self.retired and run_id not in self.probed:  # it was there before
            self.probed.add(run_id)
            return Finding(again=(run_id,))
        failed = self.in_a_row.setdefault(place, [])
        failed.append(run_id)
        enough = len(failed) >= IN_A_ROW and place not in self.probes.values()
        if not (enough and can_spare) or run_id in self.probed:
            return NOTHING
        self.probes[run_id] = place
        self.probed.add(run_id)
        return Finding(again=(run_id,), kept_out=place)

    def untold(self, run_id: str) -> Finding:
        """A run that was to be tried elsewhere is somebody else's: it tells nothing."""
        suspect = self.probes.pop(run_id, None)
        return NOTHING if suspect is None else self._free(suspect)

    def _told(self, run_id: str, suspect: DeviceNames, *, did_well: bool) -> Finding:
        if not did_well:
            return self._free(suspect)
        self.retired.add(suspect)
        failed = tuple(self.in_a_row.pop(suspect))
        others = tuple(other for other in failed if other != run_id)
        return Finding(again=others, retired=suspect, failed=failed)

    def _free(self, suspect: DeviceNames) -> Finding:
        self.in_a_row.pop(suspect, None)
        return Finding(freed=suspect)


def fits_without(kept_out: Sequence[str], devices: Sequence[str], size: int) -> bool:
    """Whether a run of a size fits on the devices that are left."""
    return len(set(devices) - set(kept_out)) >= size


def tell_retired(
    finding: Finding, place: str, reasons: Mapping[str, str], experiment: Path
) -> None:
    """Say that a place was retired, and note it beside the plan.

    place: in words. reasons: of the runs that failed, by name. experiment: its folder.
    """
    told = [reasons[run_id] for run_id in finding.failed if reasons.get(run_id)]
    retired = Retired(
        at=now_iso(),
        place=place,
        n_failed=len(finding.failed),
        reason=told[0] if told else "no reason was told",
    )
    print(f"{retired.words}; its runs go elsewhere", flush=True)
    note_retired(experiment, retired)
