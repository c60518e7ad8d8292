"""What `ablate --help` lists: the commands by subject, in the order in which a user meets them."""

from typing import Any

from typer.core import TyperGroup

from harness.cli.options import EXIT_STOPPED
from harness.errors import StoppedError

INTERRUPTED = "interrupted; run the same command again to go on"

PANELS = {  # the headings of docs/command-line.md, which documents the commands in this order
    "Experiments": (
        "run",
        "plan",
        "status",
        "log",
        "cancel",
        "rerun",
        "confirm",
        "rename",
        "delete",
        "merge",
        "push",
        "box",
        "clean",
    ),
    "Results": (
        *("report", "compare", "figures", "chain", "export", "verify"),
        *("submission", "significance", "atlas", "noise", "site", "track"),
    ),
    "Foreign trainers": ("ab", "split", "import"),
    "What exists": ("toggles", "records", "diff", "bench", "doctor", "parity"),
    "Your own": ("new-change", "data"),
}


class PanelGroup(TyperGroup):
    """A group of commands whose help has a section for each of PANELS; Ctrl-C is an error."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was named. Raises StoppedError where it is interrupted."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # of which typer would keep the exit code alone
            raise StoppedError(INTERRUPTED, EXIT_STOPPED["interrupted"]) from None

    def list_commands(self, ctx: Any) -> list[str]:
        """The names in the order of PANELS; one that stands in none comes last."""
        placed = [name for names in PANELS.values() for name in names]
        return sorted(
            self.commands,
            key=lambda name: placed.index(name) if name in placed else len(placed),
        )

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, self.commands))
        room = formatter.width - 6 - width
        for title, names in PANELS.items():
            rows = []
            for name in names:
                rows.append((name.ljust(width), self.commands[name].get_short_help_str(room)))
            with formatter.section(title):
                formatter.write_dl(rows)
