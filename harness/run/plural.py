"""How many of a thing, in words."""


def plural(n: int, thing: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{n} {thing}" if n == 1 else f"{n} {thing}s"
