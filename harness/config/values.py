"""Which values a toggle may take, in words."""

from typing import Any

TYPE_WORDS = {
    "NoneType": "null",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
}


def allowed_text(hint: Any) -> str:
    """A type in words: its choices, or its name."""
    args = getattr(hint, "__args__", ())
    if getattr(hint, "__origin__", None) is tuple:
        return "a list of numbers" if float in args else "a list of integers"
    if args and all(isinstance(a, str) for a in args):
        return " | ".join(args)
    if args:
        return " | ".join(map(allowed_text, args))
    return TYPE_WORDS.get(getattr(hint, "__name__", ""), str(hint))
