"""A made nvidia-smi, for tests of nodes with GPUs that are not there."""

import os
from pathlib import Path

ANSWERS = """#!/bin/sh
[ -e "{folder}/silent" ] && exec sleep 3600
[ -e "{folder}/broken" ] && {{ echo "Failed to initialize NVML: Driver/library version mismatch"; exit 18; }}
case "$*" in
-L) for i in {indices}; do echo "GPU $i: fake (UUID: GPU-$i)"; done;;
*query-compute-apps*) cat "{folder}/apps" 2>/dev/null;;
*query-gpu=index,uuid*) for i in {indices}; do echo "$i, GPU-$i"; done;;
esac
exit 0
"""


class FakeDriver:
    """nvidia-smi in a folder of its own, which shows so many GPUs until it breaks."""

    def __init__(self, folder: Path, n_gpus: int) -> None:
        self.folder = folder / "driver"
        self.folder.mkdir()
        tool = self.folder / "nvidia-smi"
        indices = " ".join(map(str, range(n_gpus)))
        tool.write_text(ANSWERS.format(folder=self.folder, indices=indices))
        tool.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        """Of processes that shall find it first."""
        return {
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "ABLATE_LOCKS": str(self.folder / "locks"),
        }

    def be(self, how: str) -> None:
        """silent: it no longer answers; broken: it fails."""
        (self.folder / how).touch()

    def recover(self) -> None:
        for how in ("silent", "broken"):
            (self.folder / how).unlink(missing_ok=True)

    def computes(self, *rows: str) -> None:
        """What it says of processes on its GPUs: `GPU-0, 123`."""
        (self.folder / "apps").write_text("".join(f"{row}\n" for row in rows))
