"""Where compiled kernels are kept on this node, and whose run compiles a configuration's first.

They lie on the node itself: on file systems that nodes share, caches of compilers are known to
fail (stale handles, ranks that hang).
"""

import os
from collections.abc import Callable
from pathlib import Path

from harness.corpora.cache import cache_root
from harness.errors import UserError
from harness.run.digests import short_digest
from harness.run.spec import RunSpec

try:
    import fcntl
except ImportError:  # not of this system
    fcntl = None  # type: ignore[assignment]

CURE = "name a folder of yours in ABLATE_CACHE"


def kernel_folder() -> Path:
    """Of this user, in the node's folder for copies, which users may share.

    Raises UserError where it cannot be made, or another user has made it: kernels are code.
    """
    folder = cache_root() / f"kernels-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_ours = folder.stat().st_uid == os.getuid()
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror}: {CURE}") from None
    if not is_ours:
        raise UserError(f"{folder} is another user's: {CURE}")
    return folder


def kernel_cache(spec: RunSpec) -> Path | None:
    """A configuration's mark in the folder of compiled kernels; None if it compiles none.

    It is made when the configuration's first run on this node starts. The folder is one for all,
    since kernels go by their content: what one process holds in memory for one configuration would
    be missing from another's.
    """
    wish = spec.config.get("system", {}).get("compile", "off")  # of a foreign trainer its own
    if wish == "off" or (wish == "auto" and spec.device != "cuda"):
        return None
    configuration = short_digest([spec.config, spec.device, spec.world_size])
    return kernel_folder() / spec.environment_digest / configuration


class TurnToCompile:
    """Held by a configuration's first run on this node, until that has made a step.

    Jobs know nothing of each other but a lock of the kernel: whoever dies lets go.
    """

    def __init__(self, mark: Path | None) -> None:
        """mark: of the configuration; None: nothing is compiled."""
        self.mark = mark
        self.file: int | None = None

    def wait(self, look: Callable[[], bool]) -> None:
        """Until nobody else compiles this. look: called between two tries; False ends the wait."""
        if self.mark is None or fcntl is None:
            return
        self.mark.parent.mkdir(parents=True, exist_ok=True)
        path = self.mark.with_suffix(".lock")
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        while look():
            try:
                fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                continue
            except OSError:  # a file system without locks
                break
        if self.mark.exists():
            self.release()

    def release(self) -> None:
        """Let the siblings begin; a second time does nothing."""
        file, self.file = self.file, None
        if file is not None:
            os.close(file)
