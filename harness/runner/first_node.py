"""torchrun on the first of several nodes: it takes a port, then tells the others which.

`python -m harness.runner.first_node FILE ADDRESS TORCHRUN_ARGUMENTS...`. The system chooses the
port while it is bound here, and nobody else can have it: torchrun, in this same process, serves on
the very socket. FILE then holds {"at": "ADDRESS:PORT"}.
"""

import sys
from pathlib import Path

from torch.distributed import TCPStore
from torch.distributed.run import main as torchrun

from harness.run.files import write_json
from harness.run.guarded import IN_FOLDER


def listen(address: str) -> TCPStore:
    """A store on a port of the system's choice, which other stores of this process share."""
    return TCPStore(address, 0, is_master=True, wait_for_workers=False, multi_tenant=True)


def main() -> None:
    file, address, *arguments = sys.argv[1:]
    held = listen(address)  # for as long as this process lives
    met = {"at": f"{address}:{held.port}"}
    write_json(Path(file), met, below=IN_FOLDER)
    torchrun(["--master-addr", address, "--master-port", str(held.port), *arguments])


if __name__ == "__main__":
    main()
