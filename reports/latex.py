"""Text for LaTeX and BibTeX: ASCII alone, nothing in it that TeX would take for a command."""

import unicodedata

from reports.format import visible

SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\textbraceleft{}",  # BibTeX counts braces, those after a backslash too
    "}": r"\textbraceright{}",
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
