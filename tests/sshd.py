"""An ssh server of this user's on this machine, for the tests of what goes to another one."""

import getpass
import os
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

NEEDED = ("sshd", "ssh", "ssh-keygen", "rsync")
DAEMONS = f"{os.environ['PATH']}:/usr/sbin:/sbin"


def skip_without_ssh() -> None:
    """Skip where a program is missing, unless ABLATE_REQUIRE_SSH says that none may be."""
    missing = [name for name in NEEDED if shutil.which(name, path=DAEMONS) is None]
    if missing and "ABLATE_REQUIRE_SSH" not in os.environ:
        pytest.skip(f"needs {', '.join(missing)}: apt-get install openssh-server rsync")
    assert not missing


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def answers(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def ssh_server(folder: Path, port: int) -> Iterator[str]:
    """A server on this port while the block lasts; the command to reach it, for RSYNC_RSH."""
    folder.mkdir(exist_ok=True)
    for name in ("host", "user"):
        if not (folder / name).exists():
            made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(made, check=True)
    shutil.copy(folder / "user.pub", folder / "keys")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    options = {
        "Port": port,
        "ListenAddress": "127.0.0.1",
        "HostKey": folder / "host",
        "AuthorizedKeysFile": folder / "keys",
        "PidFile": "none",
        "StrictModes": "no",
        "UsePAM": "no",
        "PasswordAuthentication": "no",
        "PermitRootLogin": "prohibit-password",
        "MaxStartups": 100,
    }
    (folder / "config").write_text("".join([f"{key} {value}\n" for key, value in options.items()]))
    sshd = shutil.which("sshd", path=DAEMONS)
    assert sshd is not None
    with (folder / "log").open("ab") as log:
        server = subprocess.Popen([sshd, "-D", "-e", "-f", folder / "config"], stderr=log)
    try:
        end = time.monotonic() + 30
        while not answers(port):
            assert server.poll() is None and time.monotonic() < end, (folder / "log").read_text()
            time.sleep(0.02)
        shell = ["ssh", "-F", "/dev/null", "-i", str(folder / "user"), "-o", "IdentitiesOnly=yes"]
        shell += ["-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={folder}/known"]
        yield shlex.join([*shell, "-o", "LogLevel=ERROR"])
    finally:
        sessions = psutil.Process(server.pid).children(recursive=True)
        server.kill()
        server.wait()
        for session in sessions:
            with suppress(psutil.NoSuchProcess):
                session.kill()


def address(port: int, folder: Path) -> str:
    """What --push calls a folder behind the server."""
    return f"ssh://{getpass.getuser()}@127.0.0.1:{port}{folder}"
