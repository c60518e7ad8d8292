"""How fast the loader reads.

`python -m harness.bench.loader_speed [CORPUS]` prints tokens a second of one core for each order.
"""

import sys
import time

import torch

from harness.corpora.index import open_corpus
from harness.data.loader import Layout, TrainLoader

SECONDS = 3.0  # of the processor, after a first pass that brings the shards into memory
CASES = (("sequential", 1024), ("shuffled", 1024), ("shuffled", 128))


def tokens_per_s(loader: TrainLoader, batch_tokens: int, n_first: int) -> float:
    """Tokens a second of a loader that has made n_first steps already."""
    for _ in range(n_first):
        next(loader)
    n_steps, spent_s = 0, 0.0
    start = time.process_time()
    while spent_s < SECONDS:
        next(loader)
        n_steps += 1
        spent_s = time.process_time() - start
    return n_steps * batch_tokens / spent_s


def main() -> None:
    torch.set_num_threads(1)
    corpus, batch_tokens = open_corpus(sys.argv[1] if len(sys.argv) > 1 else "stdlib"), 524288
    for order, seq_len in CASES:
        layout = Layout(batch_tokens=batch_tokens, micro_tokens=65536, seq_len=seq_len)
        loader = TrainLoader(corpus.train, layout, order=order)
        speed = tokens_per_s(loader, batch_tokens, corpus.tokens["train"] // batch_tokens)
        print(
            f"{corpus.name}, {order}, sequences of {seq_len}: {speed / 1e6:.0f} million tokens a"
            " second"
        )


if __name__ == "__main__":
    main()
