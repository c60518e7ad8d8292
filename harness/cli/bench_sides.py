"""What `ablate bench` was asked for, and what a side of its comparison means."""

from dataclasses import dataclass

from harness.cli.lookup import parse_overrides
from harness.errors import UserError
from harness.run.document import Content


@dataclass(frozen=True)
class Asked:
    """What the command was given."""

    preset: str | None
    settings: Content
    scale: str | None = None
    compare: tuple[str, str] | None = None
    bandwidth: float | None = None  # GB/s


def side(text: str, preset: str | None) -> tuple[str, Content]:
    """One side of --compare: a preset's name, or KEY=VALUE,... on the preset of the command."""
    if "=" not in text:
        return text, {}
    if preset is None:
        raise UserError(
            f"--compare {text}: a setting needs a preset, for example `ablate bench r08 --compare"
            f" {text} ...`"
        )
    return preset, parse_overrides(text.split(","), None)
