"""Which values a toggle may take, in words."""

from typing import Any

TYPE_WORDS = {
    "NoneType": "null",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "tuple": "a list of integers",
}


def allowed_text(hint: Any) -> str:
    """A type in words: its choices, or its name."""
    args = getattr(hint, "__args__", ())
    if args and all(isinstance(a, str) for a in args):
        return " | ".join(args)
    if args and getattr(hint, "__origin__", None) is not tuple:
        return " | ".join(map(allowed_text, args))
    return TYPE_WORDS.get(getattr(hint, "__name__", ""), str(hint))
