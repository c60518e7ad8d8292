"""A lock for each GPU of a node, across results folders and users: one run at a time.

An advisory lock of the kernel on a file in a folder of the node: whoever dies lets go. Who needs
several GPUs and gets some keeps those while it waits for the others, and meanwhile nobody on the
node begins anything: or two could wait for each other, and one run could wait for ever.
"""

import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # not of this system
    fcntl = None  # type: ignore[assignment]

PLACE = "ABLATE_LOCKS"
TURN = "turn"  # to wait for several


def lock_folder() -> Path:
    """Where the locks of this node lie: ABLATE_LOCKS, else a folder that all its users share."""
    return Path(os.environ.get(PLACE) or Path(tempfile.gettempdir()) / "ablate-devices")


class DeviceLocks:
    """The locks that one runner holds. Without locks on this system every device is its own."""

    def __init__(self, identifiers: Mapping[str, str], folder: Path | None = None) -> None:
        """identifiers: device as a run names it -> what it is called on this node by everybody."""
        self.identifiers = identifiers
        self.folder = folder or lock_folder()
        self.held: dict[str, int] = {}  # name -> file descriptor
        self.busy: tuple[str, ...] = ()  # devices that another runner had at the last try
        self.told_busy = False

    def take(self, devices: Sequence[str], n: int) -> tuple[str, ...] | None:
        """Hold n of the devices, the first ones that are free; None if too few are.

        devices: which nothing of this runner uses. Those that a wait has kept come first.
        """
        wanted = sorted(devices, key=lambda device: device not in self.held)
        got: list[str] = []
        self.busy = ()
        if not self._lock(TURN):
            self._say("another runner on this node waits for several GPUs")
            return None
        for device in wanted:
            if len(got) == n:
                break
            if self._lock(device):
                got.append(device)
            else:
                self.busy = (*self.busy, device)
        if len(got) == n:
            spare = [device for device in devices if device in self.held and device not in got]
            self.release(spare)
            self._unlock(TURN)
            return tuple(device for device in devices if device in got)
        if n == 1:
            self.release(got)
            self._unlock(TURN)
        if self.busy:
            self._say(f"GPU {', '.join(self.busy)} is in use by another runner on this node")
        return None

    def _say(self, why: str) -> None:
        """That this call waits for another one, once."""
        if not self.told_busy:
            self.told_busy = True
            print(f"{why}: runs wait for it", flush=True)

    def others_have(self, devices: Sequence[str]) -> bool:
        """Whether another runner has one of the devices."""
        for device in devices:
            if device in self.held:
                continue
            if not self._lock(device):
                return True
            self._unlock(device)
        return False

    def release(self, devices: Sequence[str]) -> None:
        for device in devices:
            self._unlock(device)

    def _lock(self, name: str) -> bool:
        if name in self.held or fcntl is None:
            return True
        try:
            file = self._open(name)
        except OSError:
            return True  # no place for locks: as without
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        except OSError:
            os.close(file)
            return True
        self.held[name] = file
        return True

    def _open(self, name: str) -> int:
        """The lock's file, which every user of the node may lock."""
        if not self.folder.is_dir():
            self.folder.mkdir(parents=True, exist_ok=True)
            with suppress(OSError):
                self.folder.chmod(0o1777)
        called = self.identifiers.get(name, name).replace("/", "-")
        path, flags = self.folder / f"{called}.lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        with suppress(FileNotFoundError):
            return os.open(path, flags)  # a kernel may refuse O_CREAT of another user's file
        with suppress(FileExistsError):
            file = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
            os.fchmod(file, 0o644)  # whatever this user's umask says
            return file
        return os.open(path, flags)  # another process was faster

    def _unlock(self, name: str) -> None:
        file = self.held.pop(name, None)
        if file is not None:
            os.close(file)
