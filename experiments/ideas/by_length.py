"""by_length: documents in the order of their length, those of one length as the seed has it."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from harness.data.documents import Documents
from harness.model.config import toggle


@dataclass(frozen=True, kw_only=True)
class Toggles:
    """Set as plugin.by_length.FIELD. While every field has its default, it is off."""

    first: Literal["drawn", "short", "long"] | None = toggle(
        None, record="own", doc="which documents come first; drawn: as the seed has them"
    )


def order(documents: Documents, seed: int, toggles: Toggles) -> NDArray[np.int64]:
    """The numbers of all documents, each once, as they are to be read."""
    drawn = np.random.default_rng(seed).permutation(len(documents))
    if toggles.first == "drawn":
        return drawn
    shortest_first = drawn[np.argsort(documents.lengths[drawn], kind="stable")]
    return shortest_first if toggles.first == "short" else shortest_first[::-1]
