"""What a matrix will cost before it starts.

From its own finished runs where there are any, else from FLOPs and the card.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean

from harness.config.run import from_plain
from harness.config.schedule import tokens_trained
from harness.corpora.corpus import corpus_folder, describe
from harness.corpora.tokenizers import GPT2_VOCABULARY
from harness.errors import UserError
from harness.node.nvidia import query_gpus
from harness.node.slots import Node
from harness.run.document import Content
from harness.run.plural import plural
from harness.run.results import read_result, where_time_went
from harness.run.spec import PlannedRun, RunSpec, is_exclusive, trunks_of
from harness.training.flops import flops_per_token

# dense bf16 FLOP/s of a card, from its maker's data sheet; the first name found in the device's
CARDS = {
    "B200": 2.25e15,
    "H200": 9.9e14,
    "H100": 9.9e14,
    "GH200": 9.9e14,
    "A100": 3.1e14,
    "L40": 1.8e14,
    "4090": 1.65e14,
    "A10": 1.25e14,
}
ASSUMED = "H100"  # where no card can be asked: on a login node
SHARE = 0.35  # of a card's FLOP/s that a small GPT's training makes
CPU_FLOPS = 2e10  # of one processor in such training: small matrices in fp32
BYTE_VOCABULARY = 257  # every byte, and the separator


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What the missing runs of a plan still take."""

    runs: int
    tokens: int | None = None  # of training; None: foreign trainers keep it to themselves
    slot_hours: float | None  # None: not known before a run is done
    gpu_hours: float | None  # None on a CPU too
    wall_hours: float | None = None  # on this machine; None: not asked
    source: str | None  # what the hours were taken from
    useful: float | None = None  # the part of them that trains or validates; None: not known
    words: str

    @property
    def hours(self) -> float | None:
        """GPU-hours, on a CPU hours of one slot; None where they are not known."""
        if self.gpu_hours is not None:
            return self.gpu_hours
        return self.slot_hours

    def to_mapping(self) -> Content:
        """What `--json` prints; of foreign trainers without what is not known of them."""
        content = asdict(self)
        for name in ("tokens", "wall_hours", "useful"):
            if content[name] is None:
                del content[name]
        return content


@dataclass(frozen=True, kw_only=True)
class PricedCost(Cost):
    """A cost with its price: of a GPU-hour, on a CPU of an hour of one slot."""

    price_per_hour: float | None
    price: float | None

    def to_mapping(self) -> Content:
        content = super().to_mapping()
        prices = {name: content.pop(name) for name in ("price_per_hour", "price")}
        return {**content, "hours": self.hours, **prices}


@cache
def card() -> str:
    """The name of this machine's first GPU, or the assumed one."""
    gpus = query_gpus("name")
    for name in CARDS:
        if gpus and name in gpus[0][0]:
            return name
    return ASSUMED


def by_flops(spec: RunSpec) -> float:
    """Seconds of a run, validation included, from what it computes and what its devices can."""
    config = from_plain(spec.config)
    d = config.data
    flops = flops_per_token(config, vocabulary_of(d.corpus))
    n_validations = spec.own_steps // d.val_every + 1
    training = (flops.model + flops.optimizer) * training_tokens(spec)
    validation = flops.model / 3 * n_validations * d.val_tokens
    device_flops = CPU_FLOPS
    if spec.device == "cuda":
        device_flops = CARDS[card()] * SHARE
    return (training + validation) / (spec.world_size * device_flops)


def training_tokens(spec: RunSpec) -> int:
    """What a run trains on itself."""
    first = spec.branch.at if spec.branch else 0
    return tokens_trained(from_plain(spec.config), range(first, first + spec.own_steps))


def vocabulary_of(corpus: str) -> int:
    """Tokens of a corpus's vocabulary; before it is prepared those that it will have."""
    folder = corpus_folder(corpus)
    if (folder / "corpus.json").exists():
        return describe(folder).vocab_size
    return BYTE_VOCABULARY if corpus == "stdlib" else GPT2_VOCABULARY


@dataclass(frozen=True, kw_only=True)
class FinishedRuns:
    """The plan's finished runs: seconds by kind without their worker's imports, and by phase."""

    seconds: Mapping[str, Sequence[float]]
    walls: Sequence[Mapping[str, float]]


def measured(planned: Sequence[PlannedRun], done: Collection[str], results: Path) -> FinishedRuns:
    """What the finished runs took."""
    seconds: dict[str, list[float]] = {}
    walls = []
    for run in planned:
        if run.spec.run_id not in done:
            continue
        wall = wall_of(run, results)
        if wall.get("total_s"):
            walls.append(wall)
            took_s = wall["total_s"] - wall.get("import_s", 0.0)
            seconds.setdefault(_kind(run.spec), []).append(took_s)
    return FinishedRuns(seconds=seconds, walls=walls)


def wall_of(run: PlannedRun, results: Path) -> Mapping[str, float]:
    """Seconds of a run by phase, empty where it has no result."""
    result = read_result(results / "runs" / run.spec.run_id)
    if result is None:
        return {}
    return result.wall or {}


def _kind(spec: RunSpec) -> str:
    """Equal for runs that take the same time.

    As many updates of one configuration on as many processes.
    """
    return f"{spec.seedless.config_digest} {spec.world_size} {spec.own_steps}"


def seconds_by_kind(
    planned: Sequence[PlannedRun], measured_s: Mapping[str, Sequence[float]]
) -> dict[str, float]:
    """Seconds of one run of each kind: as measured, else by FLOPs.

    Unmeasured kinds are taken to be as much slower, or faster, than their FLOPs say as the
    measured ones were.
    """
    spec_of = {_kind(run.spec): run.spec for run in planned}
    ratios = [fmean(taken) / by_flops(spec_of[kind]) for kind, taken in measured_s.items()]
    scale = fmean(ratios) if ratios else 1.0
    seconds = {}
    for kind, spec in spec_of.items():
        if kind in measured_s:
            seconds[kind] = fmean(measured_s[kind])
        else:
            seconds[kind] = scale * by_flops(spec)
    return seconds


def estimate(planned: Sequence[PlannedRun], done: Collection[str], results: Path) -> Cost:
    """Runs, tokens and hours that are still to do, and from what that is known."""
    missing = [run for run in planned if run.spec.run_id not in done]
    trunks = trunks_of(planned)
    made = {t.spec.run_id for t in trunks if read_result(results / "runs" / t.spec.run_id)}
    of_missing = {t.spec.run_id for t in trunks_of(missing)}
    to_make = [t for t in trunks if t.spec.run_id in of_missing - made]
    planned, done = [*trunks, *planned], {*made, *done}
    took = measured(planned, done, results)
    seconds = seconds_by_kind(planned, took.seconds)
    useful = where_time_went(took.walls)[1] if took.walls else None
    slot_s = gpu_s = wall_s = 0.0
    if missing:
        node = Node.here(missing[0].spec.device)
        for run in [*to_make, *missing]:
            size = run.spec.world_size
            run_s = seconds[_kind(run.spec)]
            exclusive = is_exclusive(run.spec)
            slot_s += run_s
            gpu_s += run_s * (max(len(node.gpus), size) if exclusive else size)
            wall_s += run_s / node.at_once(size, exclusive=exclusive)
    on_gpus = bool(planned) and planned[0].spec.device == "cuda"
    source = _source(took.seconds, on_gpus)
    tokens = 0
    for run in [*to_make, *missing]:
        tokens += training_tokens(run.spec)
    sentence = f"to do: {plural(len(missing), 'run')}"
    if to_make:
        sentence += f" and {plural(len(to_make), 'trunk')} that they go on from"
    sentence += f", {tokens / 1e6:.1f}M training tokens"
    if missing:
        amount = f"{slot_s / 3600:.2f} h of one slot"
        if on_gpus:
            amount = f"{gpu_s / 3600:.2f} GPU-hours"
        sentence += f", about {amount}, {wall_s / 3600:.2f} h on this machine (from {source})"
    if missing and useful is not None:
        sentence += f"; of their time {100 * useful:.0f} % was training or validation"
    return Cost(
        runs=len(missing),
        tokens=tokens,
        slot_hours=slot_s / 3600,
        gpu_hours=gpu_s / 3600 if on_gpus else None,
        wall_hours=wall_s / 3600,
        source=source,
        useful=useful,
        words=sentence,
    )


def _source(measured_s: Mapping[str, Sequence[float]], on_gpus: bool) -> str:
    if measured_s:
        return plural(sum(map(len, measured_s.values())), "finished run")
    device = f"an {card()}" if on_gpus else "this CPU"
    return f"FLOPs on {device}, to a factor of two or three"


def estimate_foreign(
    planned: Sequence[PlannedRun], results: Path, *, wall_limit_s: float | None
) -> Cost:
    """What runs of foreign trainers still cost at most.

    By the mean of the finished ones, else by their wall limit; no hours where neither is known.
    """
    taken, n_missing = [], 0
    for run in planned:
        result = read_result(results / "runs" / run.spec.run_id)
        if result is None:
            n_missing += 1
            continue
        wall = result.wall or {}
        if wall.get("total_s"):
            taken.append(wall["total_s"])
    source, run_s, how = None, wall_limit_s, "at most"
    if taken:
        source, run_s, how = plural(len(taken), "finished run"), fmean(taken), "about"
    elif wall_limit_s is not None:
        source = "their wall limit"
    hours = None
    if run_s is not None or not n_missing:
        hours = n_missing * (run_s or 0.0) / 3600
    n_gpus = planned[0].spec.config["trainer"]["gpus"] if planned else 0
    gpu_hours = None
    if hours is not None and n_gpus:
        gpu_hours = hours * n_gpus
    sentence = f"to do: {plural(n_missing, 'run')}"
    if hours is None:
        sentence += ", of a cost that is not known before one of them is done"
    elif n_missing:
        amount = f"{hours:.2f} h of one slot"
        if gpu_hours is not None:
            amount = f"{gpu_hours:.2f} GPU-hours"
        sentence += f", {how} {amount} (from {source})"
    return Cost(
        runs=n_missing, slot_hours=hours, gpu_hours=gpu_hours, source=source, words=sentence
    )


def with_price(cost: Cost, price: float | None, given: str = "") -> PricedCost:
    """The cost with its price, in any currency: of a GPU-hour, on a CPU of a slot's hour.

    given: the price in words, where it was given of another hour.
    """
    total, sentence = None, cost.words
    if price is not None and cost.hours is None:
        sentence += "; price not known before a run is done"
    elif price is not None and cost.hours is not None:
        total = cost.hours * price
        unit = "hour of a slot" if cost.gpu_hours is None else "GPU-hour"
        sentence += f"; price {total:.2f} at {given or f'{price:g} per {unit}'}"
    content = asdict(replace(cost, words=sentence))
    return PricedCost(**content, price_per_hour=price, price=total)


def spent(planned: Sequence[PlannedRun], results: Path) -> float:
    """What the finished runs of a plan took: GPU-hours, on a CPU hours of one slot."""
    hours = 0.0
    for run in planned:
        n_devices = run.spec.world_size if run.spec.device == "cuda" else 1
        hours += wall_of(run, results).get("total_s", 0.0) / 3600 * n_devices
    return hours


def check_limit(cost: Cost, most: float | None, *, already: float = 0.0) -> None:
    """Raises UserError where a matrix would cost more than the user allows.

    most: GPU-hours (on a CPU: hours of one slot).
    already: what an earlier part of it took in this call.
    """
    if most is None:
        return
    hours = cost.hours
    if hours is None:
        raise UserError(
            "--max-gpu-hours: nothing is known of what these trainers cost before a run is done: "
            "add --wall-limit S"
        )
    if hours <= most - already:
        return
    unit = "hours of one slot" if cost.gpu_hours is None else "GPU-hours"
    before, started = "", "nothing"
    if already:
        before, started = f" after {already:.3g}", "none of them"
    raise UserError(
        f"{plural(cost.runs, 'run')} need about {hours:.3g} {unit}{before} (from {cost.source}), "
        f"more than --max-gpu-hours {most:g}: {started} was started; take fewer --seeds or steps, "
        "or allow more"
    )
