"""How fast a preset trains on this machine, and where a step's time goes."""

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli import app
from harness.cli.bench_sides import Asked, side
from harness.cli.command import takes
from harness.cli.lookup import parse_overrides
from harness.cli.machines import ASIDE, StepTime, save_step
from harness.cli.options import RESULTS, Json, Results
from harness.cli.table import print_json, print_table
from harness.errors import UserError
from harness.run.document import Content, Fields

if TYPE_CHECKING:
    from harness.bench.steps import Candidate, Text

UNITS = {
    "flops_per_token": 1e6,
    "attention_flops_per_token": 1e6,
    "optimizer_flops_per_token": 1e6,
    "matrix_flops_per_s": 1e9,
}
WORDS = {1e6: "million", 1e9: "billion"}


def candidate(
    preset: str, settings: Fields, *, scale: str, device: str, text: "Text | None" = None
) -> "Candidate":
    """The configuration, ready to train on its corpus (prepared if it is the embedded one).

    preset: its name, or a YAML file's path. settings: dotted fields that replace its own. scale:
    tiny, small or gpt2. device: "cpu" or "cuda". text: of the user's own to train on.
    """
    from harness.bench.steps import Candidate, Text, resolve
    from harness.corpora.corpus import data_root
    from harness.corpora.index import open_corpus, prepare

    config, _ = resolve(preset, scale=scale, device=device, settings=settings)
    name = config.data.corpus
    if name == "stdlib" and not (data_root() / name / "corpus.json").exists():
        prepare(name)
    corpus = open_corpus(name)
    return Candidate(
        config,
        Text(
            name=name, shards=corpus.train, vocab_size=corpus.vocab_size, separator=corpus.separator
        ),
        device=device,
    )


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """The options of `ablate bench`, as they are typed."""

    preset: Annotated[str | None, typer.Argument(help="a record, for example r08")] = None
    scale: Annotated[
        str | None, typer.Option(help="tiny, small or gpt2; default: gpt2 on a GPU, tiny on a CPU")
    ] = None
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="override a field")
    ] = None
    steps: Annotated[int, typer.Option(help="timed steps, or rounds of a comparison")] = 10
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="A B", help="interleave two presets, or two settings KEY=VALUE,..."),
    ] = None
    traffic: Annotated[
        bool,
        typer.Option("--traffic", help="of a pass on an H100 that need not be here: its code"),
    ] = False
    bandwidth: Annotated[
        float | None, typer.Option(metavar="GB/S", help="of that GPU's memory (3350)")
    ] = None
    save_machine: Annotated[
        bool, typer.Option("--save-machine", help="keep the step time for `plan --on`")
    ] = False
    results: Results = RESULTS
    json: Json = False


@app.command()
@takes(BenchOptions)
def bench(options: BenchOptions) -> None:
    """Step time, throughput, memory of a preset here, and where a step's time goes."""
    preset, compare, json = options.preset, options.compare, options.json
    if preset is None and compare is None:
        raise UserError("bench needs a preset: `ablate bench r08`; `ablate records` lists them")
    fields = parse_overrides(options.settings, None)
    if options.save_machine:
        changed = [name for name in fields if not name.startswith(ASIDE)]
        if compare or options.traffic or changed:
            raise UserError(
                "--save-machine: is of a preset as it is, on a corpus: leave out "
                f"{', '.join([*changed, '--compare', '--traffic'])}"
            )
    asked = Asked(preset, fields, scale=options.scale, compare=compare, bandwidth=options.bandwidth)
    if options.traffic:
        from harness.cli.bench_traffic import tell

        tell(asked, json=json)
    elif options.bandwidth is not None:
        raise UserError(f"--bandwidth {options.bandwidth:g}: is asked of --traffic alone")
    else:
        save_in = options.results if options.save_machine else None
        time_here(asked, steps=options.steps, json=json, save_in=save_in)


def time_here(asked: Asked, *, steps: int, json: bool, save_in: Path | None = None) -> None:
    """Take steps of a preset, or of two sides in turn, and print what they took.

    steps: so many, or rounds. json: for a program. save_in: a results folder that is to know.
    """
    from harness.bench.breakdown import breakdown
    from harness.bench.steps import compare as interleaved
    from harness.bench.steps import measure, resolve
    from harness.node.slots import find_device
    from harness.provenance.machine import describe_environment

    if steps < 1:
        raise UserError(f"--steps {steps}: must be at least 1")
    device = find_device()
    if save_in is not None and device != "cuda":
        raise UserError(
            "--save-machine: there is no GPU here, and a CPU's steps are no other machine's"
        )
    scale = asked.scale or ("gpt2" if device == "cuda" else "tiny")
    preset, compare, common = asked.preset, asked.compare, asked.settings
    machine = describe_environment(None).lock
    about = {"scale": scale, "device": device, "torch": machine.get("torch"), "preset": preset}
    if compare is not None:
        sides = []
        for text in compare:
            name, fields = side(text, preset)
            sides.append(candidate(name, {**common, **fields}, scale=scale, device=device))
        times = asdict(interleaved(*sides, steps=steps))
        result = {**about, "a": compare[0], "b": compare[1], **times}
        print_json(result) if json else print_table([{k: result[k] for k in PAIR_COLUMNS}])
        return
    assert preset is not None
    one = candidate(preset, common, scale=scale, device=device)
    substituted = resolve(preset, scale=scale, device=device, settings=common)[1]
    result = {
        **about,
        "corpus": one.text.name,
        "substituted": list(substituted),
        **asdict(measure(one, steps=steps)),
    }
    if save_in is not None:
        row = StepTime(
            machine=f"1x{card_here()}",
            preset=preset,
            scale=scale,
            vocabulary=one.text.vocab_size,
            step_ms=result["step_ms_median"],
            source=f"median of {steps} steps, torch {about['torch']}",
        )
        save_step(save_in, row)
    parts = [asdict(part) for part in breakdown(one)]
    if json:
        print_json({**result, "breakdown": parts})
    else:
        print_measured(result, parts)


def card_here() -> str:
    """The name of the GPU that is used: H100 of "NVIDIA H100 80GB HBM3"."""
    import torch

    from harness.experiment.cost import CARDS

    gpu = torch.cuda.get_device_name()
    for card in CARDS:
        if card in gpu:
            return card
    return re.sub(r"\W+", "-", gpu).strip("-")


def print_measured(result: Content, parts: list[Content]) -> None:
    """The figures of one preset, a line each, and the parts of a step."""
    print_table([line(name, value) for name, value in result.items() if value is not None])
    print()
    print_table([{**row, "share": f"{100 * row['share']:.1f} %"} for row in parts])


PAIR_COLUMNS = ("a", "b", "rounds", "a_ms", "b_ms", "ratio", "low", "high")


def line(name: str, value: Any) -> Content:
    """A row of the table: large numbers in millions or billions, the utilisation in percent."""
    if name in UNITS:
        return {"what": name, "value": f"{value / UNITS[name]:.4g} {WORDS[UNITS[name]]}"}
    return {"what": name, "value": f"{100 * value:.1f} %" if name == "mfu" else value}
