"""Tables for LaTeX, of booktabs."""

from collections.abc import Sequence

TABLE_HEAD = r"""% in the preamble: \usepackage{booktabs,graphicx}
\begin{table*}
\centering\footnotesize\setlength{\tabcolsep}{4pt}
"""
# a table that is too wide is made to fit, another is left as it is
FITTED = r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%"


def latex_table(
    *, heads: Sequence[str], rows: Sequence[Sequence[Sequence[str]]], caption: str, label: str
) -> str:
    """A table over both columns; heads and the pieces of cells are LaTeX already.

    A cell's pieces stand below each other; names and verdicts are paragraphs, which break.
    """
    columns = "p{2.8cm}p{2.8cm}" + "l" * (len(heads) - 2)
    lines = [f"{' & '.join(heads)} \\\\", r"\midrule"]
    for arm, verdict, *others in rows:
        printed = [paragraph(arm), paragraph(verdict), *map(stacked, others)]
        lines.append(f"{' & '.join(printed)} \\tabularnewline")
    body = "\n".join(lines)
    return (
        f"{TABLE_HEAD}\\caption{{{caption}}}\n\\label{{tab:{label}}}\n{FITTED}\n"
        f"\\begin{{tabular}}{{@{{}}{columns}@{{}}}}\n\\toprule\n{body}\n"
        "\\bottomrule\n\\end{tabular}}\n\\end{table*}"
    )


def paragraph(pieces: Sequence[str]) -> str:
    """Pieces one after another in a cell that breaks its lines."""
    return f"\\raggedright {', '.join(pieces)}"


def stacked(pieces: Sequence[str]) -> str:
    """Pieces below each other in one cell, the first on the row's own line."""
    if len(pieces) < 2:
        return "".join(pieces)
    inside = " \\\\ ".join(pieces)
    return f"\\begin{{tabular}}[t]{{@{{}}l@{{}}}}{inside}\\end{{tabular}}"
