"""What a training step reads. Everything but loader.py runs without torch.

config.py     the toggles of the data
shards.py     one shard in the benchmark's binary format, written whole or not at all, every
              corruption named
positions.py  where every rank reads, in integers;  loader.py  the same as tensors
aligned.py    both, where passes begin with documents;  prefetcher.py  the next step in advance
"""
