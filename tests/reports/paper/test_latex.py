"""Cells of a LaTeX table."""

import pytest

from reports.paper.latex import stacked


@pytest.mark.parametrize(
    ("pieces", "cell"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b"], r"\begin{tabular}[t]{@{}l@{}}a \\ b\end{tabular}"),
    ],
)
def test_pieces_stand_below_each_other_and_one_stands_alone(pieces: list[str], cell: str) -> None:
    assert stacked(pieces) == cell
