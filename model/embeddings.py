"""Tables that token ids are looked up in: the embedding, and the layers' value tables."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .config import ModelConfig
from .parameters import parameter
from .precision import Dtypes


class Embedding(nn.Module):
    """Rows of a table (rows, columns), in the dtype of the table.

    role: of its parameter, by which optimizers take it. init: how it is drawn (parameters.py).
    """

    def __init__(
        self, rows: int, columns: int, *, role: str, init: str, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.weight = parameter((rows, columns), role=role, init=init, dtype=dtype)

    def forward(self, ids_BT: Tensor) -> Tensor:
        return F.embedding(ids_BT, self.weight)


class ValueEmbeddings(nn.ModuleList):
    """Value tables as modules of their own (r16): token ids to the layers' sources."""

    def __init__(
        self, c: ModelConfig, rows: int, dtypes: Dtypes, tables: tuple[int | None, ...]
    ) -> None:
        n_tables = 1 + max(t for t in tables if t is not None)
        super().__init__(
            Embedding(rows, c.d_model, role="value_embed", init=c.value_init, dtype=dtypes.table)
            for _ in range(n_tables)
        )
        self.tables, self.dtype = tables, dtypes.matmul

    def forward(self, ids_BT: Tensor) -> list[Tensor | None]:
        values = [table(ids_BT).to(self.dtype) for table in self]
        return [None if t is None else values[t] for t in self.tables]


class PackedValueEmbeddings(nn.Module):
    """Value tables as slices of one wide table (r14, r15)."""

    def __init__(
        self, c: ModelConfig, rows: int, dtypes: Dtypes, tables: tuple[int | None, ...]
    ) -> None:
        super().__init__()
        self.n_tables = 1 + max(t for t in tables if t is not None)
        self.weight = parameter(
            (rows, self.n_tables * c.d_model),
            role="value_embed",
            init=c.value_init,
            dtype=dtypes.table,
        )
        self.tables, self.dtype = tables, dtypes.matmul

    def forward(self, ids_BT: Tensor) -> list[Tensor | None]:
        values = F.embedding(ids_BT, self.weight).to(self.dtype).chunk(self.n_tables, dim=-1)
        return [None if t is None else values[t] for t in self.tables]


VALUE_TABLES = {"separate": ValueEmbeddings, "packed": PackedValueEmbeddings}
