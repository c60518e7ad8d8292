"""What stands in braces in a command, its arguments and its variables: {script}, {gpus}, {seed}, {copy}."""

import re
from collections.abc import Mapping

from harness.errors import UserError
from harness.presets import near

PLACEHOLDERS = ("script", "gpus", "seed", "copy")
BRACED = re.compile(r"\{\{(\w+)\}\}|(?<!\$)\{([A-Za-z_]\w*)\}")  # {{word}} is {word}; ${word} is a shell's


def asks_for(name: str, *texts: str) -> bool:
    """Whether {name} stands in one of the texts."""
    return any(m[2] == name for text in texts for m in BRACED.finditer(text))


def fill(text: str, values: Mapping[str, object]) -> str:
    """The text with every placeholder replaced."""
    return BRACED.sub(lambda m: f"{{{m[1]}}}" if m[1] else str(values[m[2]]), text)


def check_braces(text: str, where: str) -> None:
    """Raises UserError for a word in braces that stands for nothing."""
    for name in (m[2] for m in BRACED.finditer(text) if m[2]):
        if name not in PLACEHOLDERS:
            raise UserError(f"{where}: {{{name}}} stands for nothing{near(name, PLACEHOLDERS)} ({{{{{name}}}}} gives {{{name}}})")
