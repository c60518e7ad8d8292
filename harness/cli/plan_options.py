"""What `ablate plan` is told."""

from dataclasses import dataclass
from typing import Annotated

import typer

from harness.cli.machines import Machine
from harness.cli.options import RESULTS, Json, Results, SeedCount, Set
from harness.errors import UserError


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """The options of `ablate plan`, as they are typed."""

    experiments: Annotated[
        list[str],
        typer.Argument(
            metavar="EXP...",
            help="as for run; several, or a folder such as deltas, make one table",
        ),
    ]
    seeds: SeedCount = None
    settings: Set = None
    results: Results = RESULTS
    detect: Annotated[
        float | None,
        typer.Option(
            help="the smallest difference in loss worth knowing: how many seeds does it need?"
        ),
    ] = None
    price: Annotated[
        float | None,
        typer.Option(
            help="of a GPU-hour, in any currency (on a CPU: of an hour of one slot)", min=0.0
        ),
    ] = None
    on: Annotated[
        str | None,
        typer.Option(metavar="8xH100", help="on that machine instead of this one"),
    ] = None
    price_node: Annotated[
        float | None,
        typer.Option("--price-node", help="of an hour of all of --on, in any currency", min=0.0),
    ] = None
    gpus_per_run: Annotated[int | None, typer.Option("--gpus-per-run", min=1)] = None
    json: Json = False

    @property
    def machine(self) -> Machine | None:
        """What --on names, None where it is this machine; raises UserError."""
        if self.on is not None:
            if self.price is not None:
                raise UserError("--price: of a machine with --on say --price-node, of all its GPUs")
            return Machine.of(self.on, self.price_node)
        if self.price_node is not None:
            raise UserError("--price-node: is of the machine that --on names, such as 8xH100")
        return None
