"""Where finished runs are sent, by its name.

A folder, a folder of another machine by ssh, or a URL that fsspec knows; each is a results folder.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from harness.errors import UserError
from harness.push.errors import PushError
from harness.push.folder import FolderPlace
from harness.push.remote import RemotePlace
from harness.push.ssh import SshFiles
from harness.push.url import UrlFiles
from harness.store.merge import Merged
from harness.store.store import Store

FORMS = "name a folder, HOST:FOLDER, ssh://HOST:PORT/FOLDER, or a URL such as s3://BUCKET/FOLDER"
HOST = re.compile(r"(?:[\w.-]+@)?(?:\w[\w.-]*|\[[0-9a-fA-F:]+\])", re.ASCII)
REMOTE_FOLDER = re.compile(r"[\w./@%+=~-]+", re.ASCII)  # which no shell reads as anything else


class Destination(Protocol):
    """A results folder that lies elsewhere. Its methods raise PushError."""

    def open(self) -> None:
        """Make it where it is missing, and see that it can be written."""

    def connect(self) -> None:
        """Be ready for many messages."""

    def runs(self) -> set[str]:
        """The runs that have a result there."""

    def send(self, store: Store, run_ids: Sequence[str]) -> Merged:
        """Send finished runs, each whole or not at all; one that has a result there stays so."""

    def send_plans(self, store: Store) -> Merged:
        """Join the plans and the ledger there with those of a folder."""

    def bring(self, store: Store, *, mend: bool = False) -> Merged:
        """Bring in every finished run of it, verified.

        mend: let one that is not sound there give way to what is sent.
        """


def is_elsewhere(name: str) -> bool:
    """Whether a name is no path of a folder on this machine."""
    return "://" in name or _is_of_ssh(name)


def place_of(name: str) -> Destination:
    """The place that a name means; raises UserError for what means none."""
    if name.startswith("ssh://"):
        url = urlsplit(name)
        try:
            port = url.port
        except ValueError:
            raise UserError(f"{name}: the port is no number: {FORMS}") from None
        host = url.netloc.removesuffix(f":{port}")
        return RemotePlace(_files_by_ssh(name, host, unquote(url.path) or "/", port))
    if name.startswith("file://"):
        return FolderPlace(Path(unquote(urlsplit(name).path)))
    if "://" in name:
        return RemotePlace(UrlFiles(name))
    if _is_of_ssh(name):
        host, _, folder = name.partition(":")
        return RemotePlace(_files_by_ssh(name, host, folder, None))
    if not name or name.startswith("-"):
        raise UserError(f"'{name}' is no place to send runs to: {FORMS}")
    return FolderPlace(Path(name))


def opened(name: str, results: Path) -> Destination:
    """The place that a name means, which can be written; raises UserError where it cannot."""
    place = place_of(name)
    if isinstance(place, FolderPlace) and place.store.root.resolve() == results.resolve():
        raise UserError(f"{name}: this is the results folder itself: name another place")
    try:
        place.open()
    except PushError as error:
        raise UserError(f"{name}: {error}: {FORMS}") from None
    return place


def _is_of_ssh(name: str) -> bool:
    """Whether it is HOST:FOLDER, as rsync and scp read it."""
    before, colon, _ = name.partition(":")
    return bool(colon) and os.sep not in before


def _files_by_ssh(name: str, host: str, folder: str, port: int | None) -> SshFiles:
    if not HOST.fullmatch(host):
        raise UserError(f"{name}: '{host}' is no name of a host: {FORMS}")
    if not REMOTE_FOLDER.fullmatch(folder):
        allowed = "letters, digits and any of ._-/@%+=~"
        raise UserError(f"{name}: '{folder}' is no folder: its name may have {allowed}")
    return SshFiles(host, folder.removeprefix("~/") or ".", port)
