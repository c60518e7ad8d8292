"""The benchmark's tokens: FineWeb in GPT-2 tokens.

From the public dataset, or from files you put in place yourself.
"""

import logging
from importlib import import_module
from pathlib import Path

from harness.corpora.corpus import Corpus, write_corpus
from harness.corpora.shard_writer import OnProgress, quiet
from harness.data.shards import count_tokens
from harness.errors import UserError

REPOSITORY = "kjj0/fineweb10B-gpt2"
N_SHARDS = 103  # training shards of 1e8 tokens in the dataset
DEFAULT_SHARDS = 9  # an 8-rank record takes 190 updates from a shard: enough for records 14 to 18


def prepare_fineweb(
    folder: Path, progress: OnProgress = quiet, *, n_shards: int = DEFAULT_SHARDS
) -> Corpus:
    """The validation shard and the first `n_shards` training shards.

    Files that are there already are checked, not fetched.
    """
    if not 1 <= n_shards <= N_SHARDS:
        raise UserError(f"{n_shards} shards of fineweb10B: choose 1 to {N_SHARDS}")
    names = [
        "fineweb_val_000000.bin",
        *(f"fineweb_train_{number:06d}.bin" for number in range(1, n_shards + 1)),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    for done, name in enumerate(names, 1):
        if not (folder / name).exists():
            fetch(name, folder)
        count_tokens(folder / name)  # names a damaged file, fetched or put there
        progress(done, len(names))
    return write_corpus(
        folder,
        {"val": [folder / names[0]], "train": [folder / name for name in names[1:]]},
        vocab_size=50257,
        separator=50256,
        unit="nats per token",
        source=f"https://huggingface.co/datasets/{REPOSITORY}, first {n_shards} training shards",
    )


def fetch(name: str, folder: Path) -> None:
    """Download one file.

    An interrupted download goes on where it stopped, and the file bears its name only when
    whole.
    """
    by_hand = (
        f"or put the file into {folder}/ yourself (from "
        f"https://huggingface.co/datasets/{REPOSITORY}) and call this again"
    )
    try:
        hub = import_module("huggingface_hub")  # optional, so imported by name where it is used
    except ImportError:
        raise UserError(
            f"{name}: downloading needs huggingface_hub: pip install huggingface_hub, {by_hand}"
        ) from None
    # not its retries; what they end in is said below
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        hub.hf_hub_download(
            repo_id=REPOSITORY, filename=name, repo_type="dataset", local_dir=folder
        )
    except Exception as error:  # whatever its HTTP library raises
        cause = (str(error).splitlines() or [""])[0][:200]
        raise UserError(
            f"{name}: the download failed ({type(error).__name__}: {cause}): try again, {by_hand}"
        ) from error
