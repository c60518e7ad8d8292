"""`python tests/small_plain.py SCRIPT`: a plain script of benchmarks/ so small that two steps take less than a second.

Its sizes are those that SMALL names (`n_layer=4 seq_len=64`), else SIZES; its data are tokens drawn here. For `ablate split --smoke`."""

import os
import re
import sys
from pathlib import Path

import numpy as np

SIZES = "n_layer=4 d_model=32 head_dim=16 seq_len=64 micro_tokens=64 batch_tokens=256"
HEADER_BYTES, SEPARATOR, N_TOKENS = 1024, 256, 4096


def small(text: str) -> str:
    """The script with other values of its parameters."""
    for given in os.environ.get("SMALL", SIZES).split():
        name, _, value = given.partition("=")
        text = re.sub(rf"(\b{name}: int = )\d+", rf"\g<1>{value}", text)
    return text


def write_shard(path: Path) -> None:
    """Random bytes, a separator after every hundredth."""
    tokens = np.random.default_rng(0).integers(0, SEPARATOR, N_TOKENS).astype(np.uint16)
    tokens[::100] = SEPARATOR
    path.write_bytes(bytes(HEADER_BYTES) + tokens.tobytes())


def main(script: str) -> None:
    """Run a script small, on tokens in its folder."""
    text = small(Path(script).read_text(encoding="utf-8"))
    shard = Path(script).parent / "shard.bin"
    write_shard(shard)
    sys.argv = [script, str(shard)]
    module = type(sys)("__main__")  # which dataclasses look up by its name
    sys.modules["__main__"] = module
    module.__file__ = script
    exec(compile(text, script, "exec"), vars(module))


if __name__ == "__main__":
    main(sys.argv[1])
