"""Token corpora on disk and the loaders that read them.

Everything but loader.py and speed.py runs without torch. shards.py     one shard in the benchmark's
binary format, written whole or not at all, every corruption named corpus.py     a prepared corpus:
its folder, its facts, its fingerprint; the writer that makes one corpora.py    the corpora that
have a name: list, prepare, open (what the command line calls) stdlib.py, fineweb.py, text.py
where their documents come from;  tokenizers.py  text to tokens check.py      verify shards and
corpora;  cache.py  copy a corpus to the node's own disk config.py     the toggles of the data;
speed.py  how fast the loader is here positions.py  where every rank reads, in integers;  loader.py
the same as tensors
"""
