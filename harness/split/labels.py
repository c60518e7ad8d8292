"""What a group is called, what kind it is, what it does in a line."""

import re
from collections import Counter
from collections.abc import Sequence

from harness.split.atoms import Atom

# Words in the names that an atom touches -> what kind of change it is, in the order asked
KINDS = {
    "budget": (
        "iterations",
        "num_steps",
        "n_steps",
        "max_steps",
        "batch",
        "epochs",
        r"steps (?=\d)",
    ),
    "data": ("loader", "shard", "dataset", "data_generator", "train_files", "bos", "token_file"),
    "system": (
        *("compile", "cuda", "stream", "triton", "kernel", "all_reduce", "reduce_scatter"),
        *("all_gather", "async_op", "pin_memory", "non_blocking", "barrier", "synchronize"),
        *("dist", "bucket", "dynamo", "inductor", "autotune", "coordinate_descent", "empty_cache"),
    ),
}
SHARE = 0.5  # of a group's lines that make it a kind
MAX_NAME = 32
DULL = frozenset(
    (
        *("self", "x", "i", "j", "n", "p", "args", "torch", "nn", "F", "range", "len", "model"),
        *("step", "loss", "int", "float", "list", "dict", "print"),
    )
)


def class_of(atoms: Sequence[Atom]) -> str:
    """The kind of a group of these atoms."""
    lines = sum(atom.n_lines for atom in atoms)
    for kind, stems in KINDS.items():
        of_kind = sum(atom.n_lines for atom in atoms if _touches(atom, stems))
        if of_kind > SHARE * lines:
            return kind
    return "learning"


def _touches(atom: Atom, stems: Sequence[str]) -> bool:
    """Whether the change is about one of these: for a statement, most of the names in it count."""
    said = f"{atom.place} {atom.what}".lower()
    return any(re.search(rf"(?<![a-z]){word}", said) for word in stems)


def name_of(atoms: Sequence[Atom], seen: Counter[str], taken: set[str]) -> str:
    """A short name from what the atoms touch, unlike those that are taken.

    seen: how many atoms touch each name."""
    counts = Counter(name for atom in atoms for name in atom.names if name not in DULL)
    best = ""
    if counts:
        best = max(
            sorted(counts), key=lambda name: (counts[name] / seen[name], counts[name], len(name))
        )
    puts = next(iter(atoms[0].puts), "")
    if len(atoms) == 1 and puts and puts not in DULL:
        best = puts
    if not best:
        best = puts or atoms[0].place.rpartition(".")[2]
    slug = re.sub(r"[^a-z0-9]+", "_", (best or "change").lower()).strip("_")[:MAX_NAME]
    slug = slug or "change"
    name, n = slug, 1
    while name in taken:
        n += 1
        name = f"{slug}_{n}"
    return name


def summary_of(atoms: Sequence[Atom]) -> str:
    """The largest of the atoms in a line, and how many others there are."""
    largest = max(atoms, key=lambda atom: atom.n_lines)
    where = f"{largest.place}: " if largest.place else ""
    more = f" (and {len(atoms) - 1} more)" if len(atoms) > 1 else ""
    return f"{where}{largest.what}{more}"
