"""How high a row is where a narrow drawing has one for every arm or effect.

Its name stands above its marks. Many rows stand closer, so that a phone scrolls less and two
figures fill a sheet of paper.
"""

NARROW_ROW, CLOSE_ROW = 44, 32  # px
MANY_ROWS = 12  # beyond which they stand close


def narrow_row(n_rows: int) -> int:
    """The height of one of so many rows, px."""
    if n_rows > MANY_ROWS:
        return CLOSE_ROW
    return NARROW_ROW
