"""Scripts that compile kernels: one discarded run on each node, before its first time counts."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.provenance.code import Code
from harness.run.spec import RunSpec
from harness.runner.kernels import kernel_folder
from harness.store.store import Store

COMPILERS = (b"torch.compile", b"triton")  # by what a script compiles kernels


def compiles(code: Code) -> bool:
    text = b"\n".join(code.files.values())
    return any(word in text for word in COMPILERS)


def warm_mark(spec: RunSpec) -> Path:
    """There once a run of this script was made on this node, with these versions."""
    return kernel_folder() / "scripts" / f"{spec.source_digest}-{spec.environment_digest}"


@contextmanager
def discarded_store() -> Iterator[Store]:
    """A results folder that goes at the end."""
    with tempfile.TemporaryDirectory(prefix="ablate-") as folder:
        yield Store.create(Path(folder) / "results")
