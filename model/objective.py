"""The network with a training loss on more than the next token."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .gpt import GPT
from .loss import prefix_table, weighted_cross_entropy


class Objective(nn.Module):
    """Ids and targets (B, T) to a scalar. Validation never calls it.

    texts: the bytes of every token, None of one that is no text; None: prefixes do not count.
    """

    def __init__(self, model: GPT, texts: Sequence[bytes | None] | None) -> None:
        super().__init__()
        self.model = model
        self.prefix_V = None if texts is None else torch.tensor(prefix_table(texts))

    def forward(
        self,
        ids_BT: Tensor,
        targets_BT: Tensor,
        window: Tensor | None = None,
        weights_K: Tensor | None = None,
        prefix_weight: Tensor | None = None,
    ) -> Tensor:
        """Mean loss of the network.

        window: as it takes it. weights_K, prefix_weight: of the losses, as weighted_cross_entropy
        takes them; without the first it is the network's own.
        """
        if weights_K is None:
            return self.model(ids_BT, targets_BT, window)  # type: ignore[no-any-return]
        prefixes = None
        if self.prefix_V is not None and prefix_weight is not None:
            prefixes = self.prefix_V, prefix_weight
        logits_BTV = self.model.logits(ids_BT, window)
        return weighted_cross_entropy(logits_BTV, targets_BT, weights_K, prefixes)
