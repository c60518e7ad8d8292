"""What two steps of each arm came to, kept in a folder of `split`: what passed is not run again."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from harness.run.digests import short_digest
from harness.run.document import Content, Document
from harness.run.guarded import read_text
from harness.split.folder import Folder, place, read_folder, rewritten, write_patches
from harness.split.smoke import Smoke, TwoSteps

FILE = "smoke.json"
KEPT_SCHEMA = 1


class KeptSteps:
    """Arms that took their two steps, by what they were; those that failed are tried again."""

    def __init__(self, folder: Path, take: Callable[[str], TwoSteps], *, asked: Document) -> None:
        """take: two steps of a script; asked: all beside the script that decides what it does."""
        self.folder = folder
        self.asked = asked
        self.take = take
        self.runs: dict[str, Document] = {}
        self.last: Document | None = None  # the result of a whole call
        with suppress(OSError, ValueError, KeyError, TypeError):
            content = json.loads(read_text(self.folder / FILE))
            if content["schema"] == KEPT_SCHEMA:
                self.runs = dict(content["runs"])

    def steps(self, text: str) -> TwoSteps:
        """Two steps of a script, or what they came to before."""
        key = short_digest([text, self.asked])
        kept = self.runs.get(key)
        if kept is None:
            outcome = self.take(text)
            if outcome.reason is not None:
                return outcome
            kept = self.runs[key] = asdict(outcome)
            self.write()
        told = {**kept, "losses": tuple(kept["losses"]), "norms": tuple(kept["norms"])}
        return TwoSteps(**told)

    def write(self) -> None:
        """Keep what is known by now."""
        content = {"schema": KEPT_SCHEMA, "smoke": self.last, "runs": self.runs}
        place(self.folder, FILE, (json.dumps(content, indent=1) + "\n").encode())


def smoke_mapping(smoke: Smoke) -> Content:
    """The result as JSON has it."""
    return {
        "old": asdict(smoke.old),
        "new": asdict(smoke.new),
        "repeats": smoke.repeats,
        "passed": len(smoke.arms) - len(smoke.failed),
        "first": {"passed": smoke.passed_at_first, "arms": len(smoke.first)},
        "arms": [arm.to_mapping() for arm in smoke.arms],
        "found": [asdict(need) for need in smoke.found],
    }


def with_found(folder: Folder, smoke: Smoke) -> tuple[Folder, Path | None]:
    """The folder with the needs that were found, and where its changes.yaml lies as it was.

    That is None, and nothing is written, where none were found."""
    if smoke.parts.groups == folder.groups:
        return folder, None
    kept = rewritten(folder, smoke.parts.groups)
    for patch in (folder.path / "patches").glob("*.patch"):
        if patch.stem not in {group.name for group in smoke.parts.groups}:
            patch.unlink()
    new = read_folder(folder.path)
    write_patches(new)
    return new, kept
