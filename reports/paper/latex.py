"""Text and tables for LaTeX: ASCII alone, nothing in it that TeX would take for a command."""

import unicodedata
from collections.abc import Sequence

from reports.format import visible

SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_\allowbreak{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\ensuremath{<}",
    ">": r"\ensuremath{>}",
    "|": r"\ensuremath{|}",
    '"': r"{\char34}",
    "[": "{[}",  # after \\ a bracket would be its argument
    "]": "{]}",
    "`": r"{\char96}",
    "'": r"{\char39}",
    "-": "{-}",  # two would be a dash
    "−": r"\ensuremath{-}",
    "–": r"\textendash{}",
    "—": r"\textemdash{}",
    "…": r"\ldots{}",
    "×": r"\ensuremath{\times}",
    "±": r"\ensuremath{\pm}",
    "∞": r"\ensuremath{\infty}",
    "Δ": r"\ensuremath{\Delta}",
    "·": r"\ensuremath{\cdot}",
    "≤": r"\ensuremath{\le}",
    "≥": r"\ensuremath{\ge}",
    "µ": r"\ensuremath{\mu}",
    "→": r"\ensuremath{\rightarrow}",
    "\N{NO-BREAK SPACE}": "~",
}
ACCENTS = {
    "\u0300": "`",
    "\u0301": "'",
    "\u0302": "^",
    "\u0303": "~",
    "\u0308": '"',
    "\u0304": "=",
    "\u0327": "c",
    "\u030c": "v",
}
TABLE_HEAD = r"""% in the preamble: \usepackage{booktabs,graphicx}
\begin{table*}
\centering\footnotesize\setlength{\tabcolsep}{4pt}
"""
# a table that is too wide is made to fit, another is left as it is
FITTED = r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%"


def escaped(text: str) -> str:
    """The text as LaTeX prints it; a letter that it has no plain way to is named by its number."""
    return "".join(map(one, " ".join(visible(text).split())))


def one(character: str) -> str:
    """One character as LaTeX source."""
    if character in SPECIAL:
        return SPECIAL[character]
    if " " <= character <= "~":
        return character
    parts = unicodedata.normalize("NFD", character)
    letter, accent = parts[0], parts[1:]
    if letter.isascii() and letter.isalpha() and accent in ACCENTS:
        return f"\\{ACCENTS[accent]}{{{letter}}}"
    return f"{{[}}U+{ord(character):04X}{{]}}"


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
