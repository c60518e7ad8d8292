"""What this user launched: marks in a results folder that nobody else can make.

A results folder names what would be executed to go on with it: trainers, interpreters, plug-ins.
What was launched here may be launched again; what came from elsewhere may not, unless a user says
so. The mark of a launch is a digest with a key that lies in the user's own state folder
(XDG_STATE_HOME), never in the results.
"""

import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.run.digests import canonical
from harness.run.files import write_new

KEY_BYTES = 32


def key_file() -> Path:
    """Where this user's key lies."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "ablate" / "launch.key"


def _key(*, make: bool) -> bytes | None:
    """This user's key, None where there is none, or none can be kept."""
    try:
        path = key_file()
        if make and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with suppress(FileExistsError):  # another process was faster: its key counts
                write_new(path, secrets.token_bytes(KEY_BYTES), mode=0o600)
        key = path.read_bytes()
    except (OSError, RuntimeError):  # no home, or one that cannot be written
        return None
    return key if len(key) == KEY_BYTES else None


def can_keep_key() -> bool:
    """Whether this user has a key, or a folder in which one can be made."""
    if _key(make=False) is not None:
        return True
    try:
        place = key_file().parent
    except RuntimeError:  # no home
        return False
    while not place.exists() and place != place.parent:
        place = place.parent
    return place.is_dir() and os.access(place, os.W_OK | os.X_OK)


def mark_of(what: Any) -> str | None:
    """The mark of what is launched; None where this user can keep no key."""
    key = _key(make=True)
    if key is None:
        return None
    return hmac.new(key, canonical(what), hashlib.sha256).hexdigest()


def is_mark_of(mark: Any, what: Any) -> bool:
    """Whether a mark was made here, by this user, of just this."""
    key = _key(make=False)
    if key is None or not isinstance(mark, str):
        return False
    expected = hmac.new(key, canonical(what), hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected.encode(), mark.encode())
