"""The presets' derived facts at full size against the records' published ones; docs/presets.md says which row is which field."""

import re
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.config.presets import check_names, load_preset, names, newest, preset_values, to_config
from harness.config.run import SECTIONS, RunConfig, flat, toggles
from harness.config.scales import load_scale
from harness.config.validate import check_config
from harness.data.positions import Global, PerRank
from harness.errors import UserError
from harness.experiment.values import check_values
from harness.model.gpt import GPT
from harness.model.parameters import parameters_by_role
from harness.model.tokens import Tokens
from harness.optim.schedule import lr_factor, muon_momentum, window_tokens
from tests import golden

EARLY = [
    "r02",
    "r03",
    "r03pre",
    *(f"r{n:02d}" for n in range(4, 19)),
]  # with facts of their own here
RECORDS = names("records")
GPT2 = Tokens(vocab_size=50257, separator=50256, seq_len=65536)
SHARD = 10**8  # tokens in every training shard of the records' corpus

# record: (parameters in millions, tokens in billions, first decayed step, factor of the last update)
FACTS = {
    "r02": ("123.53", "5.000", 7489, Fraction(1, 2048)),
    "r03": ("123.53", "3.670", 5001, Fraction(1, 2000)),
    "r03pre": ("123.53", "3.500", 4677, Fraction(1, 2000)),
    "r04": ("123.53", "3.251", 4401, Fraction(1, 1800)),
    "r05": ("123.57", "2.674", 3651, Fraction(1, 1450)),
    "r06": ("123.57", "2.674", 3651, Fraction(1, 1450)),
    "r07": ("123.57", "2.674", 3651, Fraction(1, 1450)),
    "r08": ("162.20", "2.400", 3271, Fraction(1, 1308)),
    "r09": ("162.20", "1.678", 2287, Fraction(1, 914)),
    "r10": ("162.20", "1.700", 2317, Fraction(1, 926)),
    "r11": ("162.20", "1.573", 2101, Fraction(1, 900)),
    "r12": ("162.20", "0.983", 1314, Fraction(1, 562)),
    "r13": ("162.20", "0.918", 1111, Fraction(1, 640)),
    "r14": ("625.80", "0.802", 931, Fraction(1, 600)),
    "r15": ("394.00", "0.776", 881, Fraction(1, 600)),
    "r16": ("394.00", "0.776", 881, Fraction(1, 600)),
    "r17": ("275.60", "0.781", 891, Fraction(1, 600)),
    "r18": ("275.74", "0.729", 835, Fraction(1, 556)),
}
# lr * update scale, about the spectral norm of one update: squares (attention), MLP up (3072 x 768), MLP down (768 x 3072)
SPECTRAL = {
    "r03": (0.018, 0.018, 0.018),
    "r04": (0.00998, 0.01995, 0.01995),
    "r05": (0.00998, 0.01995, 0.01995),
    "r07": (0.00998, 0.01995, 0.01995),
    "r08": (0.02, 0.04, 0.02),
    "r10": (0.02, 0.04, 0.02),
    "r11": (0.04, 0.08, 0.04),
    "r12": (0.04, 0.08, 0.04),
    "r13": (0.05, 0.10, 0.05),
    "r18": (0.05, 0.10, 0.05),
}
# first steps at which the window has a new value, and the first of those values
WINDOW_CHANGES = {
    "r13": ([65, 130, 195], 128),  # tokens
    "r14": ([57, 114, 170, 227], 128),
    "r15": ([55, 110, 165, 220], 128),
    "r16": ([110, 220, 329, 439, 549, 658, 768, 878, 987, 1097, 1206, 1316, 1426], 2),  # blocks
    "r17": ([111, 221, 332, 442, 552, 663, 773, 883, 994, 1104, 1215, 1325, 1435], 2),
    "r18": ([103, 206, 309, 412, 515, 618, 721, 824, 927, 1030, 1133, 1236, 1339], 2),
}
# rows of the token table and of the head
TABLES = {
    "r04": (50257, None),
    "r05": (50304, None),
    "r08": (50304, 50304),
    "r16": (50304, 50304),
    "r17": (50257, 50304),
    "r18": (50304, 50304),
}


def config(record: str) -> RunConfig:
    return to_config(preset_values(record)[0])


def network(record: str) -> GPT:
    """At full size, without memory for its parameters."""
    with torch.device("meta"):
        return GPT(config(record).model, GPT2)


def factors(record: str) -> list[float]:
    s = config(record).schedule
    return [
        lr_factor(
            step,
            steps=s.steps,
            warmup_steps=s.warmup_steps,
            cooldown_steps=s.cooldown_steps,
            cooldown_frac=s.cooldown_frac,
            floor=s.lr_floor,
        )
        for step in range(s.steps)
    ]


def windows(record: str) -> list[int]:
    c = config(record)
    s = c.schedule
    return [
        window_tokens(
            step,
            steps=s.steps,
            end=s.window_tokens,
            kind=str(c.model.attn_window),
            warmup=s.window_warmup,
        )
        for step in range(s.steps + 1)
    ]


def test_every_record_is_a_preset_on_the_one_before() -> None:
    assert RECORDS[: len(EARLY)] == EARLY == list(FACTS)
    assert [load_preset(r).base for r in EARLY] == [None, *EARLY[:-1]]


@pytest.mark.parametrize("record", RECORDS)
def test_the_golden_dump_is_up_to_date(record: str) -> None:
    path = golden.FOLDER / f"{record}.yaml"
    assert path.is_file(), "run `python -m tests.golden`"
    assert path.read_text() == golden.dump(record), (
        "run `python -m tests.golden` and review the diff"
    )


def test_there_are_no_golden_dumps_of_anything_else() -> None:
    assert sorted(p.stem for p in golden.FOLDER.iterdir()) == sorted(RECORDS)


@pytest.mark.parametrize("scale", golden.SCALES)
@pytest.mark.parametrize("record", RECORDS)
def test_every_preset_is_valid_at_every_scale(record: str, scale: str) -> None:
    values = load_scale(scale, record).apply(preset_values(record)[0])
    check_config(to_config(check_values(values, lambda name: f"{record} at {scale}")))


def test_every_value_of_a_preset_has_an_origin() -> None:
    for record in RECORDS:
        values, origins = preset_values(record)
        defaults = flat(RunConfig())
        assert values.keys() == origins.keys()
        for name, origin in origins.items():
            if origin == "default":
                assert values[name] == defaults[name]
            else:
                by, change = origin.split(" ")
                assert load_preset(by).changes[change].values[name] == values[name]


def test_a_field_that_there_is_not_is_never_set() -> None:
    with pytest.raises(TypeError, match="ModelConfig has no field n_heads, n_layers"):
        to_config({"model.n_layers": 1, "model.n_heads": 1, "model.n_layer": 1})


# ---------------------------------------------------------------- derived rows


@pytest.mark.parametrize("record", EARLY)
def test_parameters_at_full_size(record: str) -> None:
    assert f"{sum(p.numel() for p in network(record).parameters()) / 1e6:.2f}" == FACTS[record][0]


@pytest.mark.parametrize("record", TABLES)
def test_rows_of_the_token_table_and_of_the_head(record: str) -> None:
    model = network(record)
    assert (
        model.embed.weight.shape[0],
        model.head.weight.shape[0] if model.head is not None else None,
    ) == TABLES[record]


def test_matrices_of_the_records_that_share_them_among_eight_ranks() -> None:
    by_size = {
        record: sorted(
            Counter(p.numel() for _, p in parameters_by_role(network(record))["hidden"]).values()
        )
        for record in ("r15", "r16", "r17")
    }
    assert by_size == {
        "r15": [24, 48],
        "r16": [24, 48],
        "r17": [24, 44],
    }  # 44 squares do not divide by 8: record 17 handles it


@pytest.mark.parametrize("record", EARLY)
def test_tokens_of_a_whole_run(record: str) -> None:
    c = config(record)
    assert c.data.batch_tokens == 524288
    assert f"{c.schedule.steps * c.data.batch_tokens / 1e9:.3f}" == FACTS[record][1]


@pytest.mark.parametrize("record", EARLY)
def test_the_cooldown_starts_and_ends_where_the_record_says(record: str) -> None:
    factor, warmup = factors(record), config(record).schedule.warmup_steps
    assert next(t for t in range(warmup, len(factor)) if factor[t] < 1) == FACTS[record][2]
    assert factor[-1] == pytest.approx(float(FACTS[record][3]), rel=1e-12)
    assert all(a > b for a, b in pairwise(factor[FACTS[record][2] - 1 :]))


def test_warm_up_of_the_rate_and_of_the_momentum() -> None:
    assert factors("r02")[:2] == [1 / 256, 2 / 256]
    assert [factors("r03")[t] for t in (0, 249, 250)] == [1 / 250, 1, 1]
    assert factors("r03pre")[0] == 1
    for record, steps in {"r08": 0, "r09": 500, "r12": 500, "r13": 300, "r18": 300}.items():
        o = config(record).optim
        at = [
            muon_momentum(t, end=o.muon_momentum, warmup_steps=o.muon_momentum_warmup_steps)
            for t in (0, steps // 2, steps)
        ]
        assert at == pytest.approx([0.85, 0.9, 0.95] if steps else [0.95] * 3)


@pytest.mark.parametrize("record", SPECTRAL)
def test_effective_spectral_rate(record: str) -> None:
    """A semi-orthogonal update has spectral norm 1, so the rate times the scale is the norm of the step."""
    scale = {
        "one": lambda m, n: 1.0,
        "sqrt_max": lambda m, n: sqrt(max(m, n)),
        "sqrt_ratio": lambda m, n: sqrt(max(1, m / n)),
    }
    o = config(record).optim
    rates = [
        o.muon_lr * scale[str(o.update_scale)](m, n)
        for m, n in ((768, 768), (3072, 768), (768, 3072))
    ]
    assert rates == pytest.approx(SPECTRAL[record], abs=5e-6)


def test_effective_spectral_rate_under_unit_rms() -> None:
    """sqrt(numel) / ||U||_F = sqrt(numel / min(m, n)) = sqrt(max(m, n)) for a semi-orthogonal U; record 3's qkv is one matrix."""
    lr = config("r03pre").optim.muon_lr
    assert [
        lr * sqrt(max(m, n)) for m, n in ((2304, 768), (768, 768), (3072, 768))
    ] == pytest.approx([0.0173, 0.0100, 0.0200], abs=5e-5)


@pytest.mark.parametrize("record", WINDOW_CHANGES)
def test_the_window_changes_where_the_record_says(record: str) -> None:
    steps, first = WINDOW_CHANGES[record]
    at = windows(record)
    changes = [t for t in range(1, len(at)) if at[t] != at[t - 1]]
    assert changes[: len(steps)] == steps
    assert at[steps[0]] == first
    assert at[0] == first // 2
    if first == 2:  # blocks: nothing changes after the last listed step
        assert len(changes) == len(steps)
        assert at[-1] == 14


def test_the_ends_of_the_token_window() -> None:
    assert set(windows("r12")) == {1024}
    at = windows("r13")
    assert at.index(1728) == 1686
    assert at.index(1792) == 1750 == len(at) - 1  # the last validation alone


BATCHES = {
    "r02": (190, 189),
    "r04": (190, 189),
    "r12": (190, 189),
    "r15": (190, 189),
    "r17": (190, 189),
    "r18": (190, 190),
}


@pytest.mark.parametrize("record", BATCHES)
def test_batches_of_a_shard(record: str) -> None:
    """How often a rank reads in the first shard: ranks 0 to 5, ranks 6 and 7."""
    d = config(record).data
    counts = []
    for rank in range(d.ranks):
        cursor = {"per_rank": PerRank, "global": Global}[d.loader](
            [SHARD, SHARD],
            rank=rank,
            ranks=d.ranks,
            read_tokens=d.micro_tokens,
            shard_switch=d.shard_switch,
        )
        counts.append(next(n for n in range(1000) if next(cursor)[0] == 1))
    assert counts == [BATCHES[record][0]] * 6 + [BATCHES[record][1]] * 2


def test_one_micro_step_on_eight_ranks() -> None:
    """Every record had batch = ranks * micro-batch: accumulation is a matter of fewer processes alone."""
    for record in RECORDS:
        d = config(record).data
        assert d.batch_tokens == d.ranks * d.micro_tokens
        assert d.val_tokens == 20 * 8 * 65536
        assert record not in EARLY or d.micro_tokens == 65536


# ---------------------------------------------------------------- scales


def test_a_scale_keeps_fractions_of_the_run_and_effective_rates() -> None:
    for scale in ("small", "tiny"):
        for record in ("r04", "r08", "r13", "r18"):
            values, _ = preset_values(record)
            at = load_scale(scale, record).apply(values)
            ratio = at["schedule.steps"] / values["schedule.steps"]
            for name in ("schedule.cooldown_steps", "optim.muon_momentum_warmup_steps"):
                assert (at[name] or 0) == pytest.approx((values[name] or 0) * ratio, abs=0.5)
            assert at["schedule.cooldown_frac"] == values["schedule.cooldown_frac"]
    values, _ = preset_values("r04")
    small = load_scale("small", "r04").apply(values)
    assert small["optim.muon_lr"] * sqrt(small["model.d_model"]) == pytest.approx(
        values["optim.muon_lr"] * sqrt(768)
    )


# ---------------------------------------------------------------- documentation


def documented() -> dict[str, str]:
    """Rows of the tables of docs/presets.md: first cell -> the rest."""
    text = (Path(__file__).resolve().parents[3] / "docs" / "presets.md").read_text()
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return {cells[0].strip(): " ".join(cells[1:]) for cells in rows}


def test_the_document_names_fields_that_exist_and_forgets_none_that_a_record_sets() -> None:
    rows = documented()
    fields = set(re.findall(rf"`((?:{'|'.join(SECTIONS)})\.\w+)`", " ".join(rows.values())))
    known: dict[str, Any] = dict(toggles())
    assert fields <= known.keys()
    used = {
        name
        for r in RECORDS
        for change in load_preset(r).changes.values()
        for name in change.values
    }
    assert used <= fields


@pytest.mark.parametrize(
    ("bases", "told"),
    [
        ({"r08": "r08"}, "r08.yaml:1: base r08 stands on r08 itself: name another"),
        ({"mine": "yours", "yours": "mine"}, "yours.yaml:1: base mine stands on yours itself"),
        ({"mine": "r99"}, "unknown record 'r99'"),
    ],
)
def test_a_preset_that_stands_on_itself_or_on_none_is_refused(
    bases: dict[str, str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kept_line: Callable[[str], None],
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "experiments" / "records"
    folder.mkdir(parents=True)
    for name, base in bases.items():
        (folder / f"{name}.yaml").write_text(
            f"base: {base}\nchanges: {{deep: {{model.n_layer: 3}}}}\n"
        )
    with pytest.raises(UserError, match=re.escape(told)) as refused:
        preset_values(next(iter(bases)))
    kept_line(str(refused.value))


def test_a_preset_may_stand_on_the_newest_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "experiments" / "records"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("base: modern\nchanges: {deep: {model.n_layer: 3}}\n")
    assert [preset.name for preset in load_preset("mine").chain[-2:]] == [newest(), "mine"]


@pytest.mark.parametrize(
    "name",
    [
        *("optim.n_layer", "n_layer", "optim.muon", "schedule.step", "xyz", "model.zzzzqqq"),
        *("optim.gate_lr_multiplier", "modle.n_layer", "plugin.mine.weight"),
    ],
)
def test_a_name_that_is_no_field_is_answered_with_what_is_meant(
    name: str, kept_line: Callable[[str], None]
) -> None:
    check_names(["model.n_layer", "plugin.mine.weight"], str, ["plugin.mine.weight"])
    with pytest.raises(UserError) as refused:
        check_names(["model.n_layer", name], lambda field: f"exp.yaml:3 {field}")
    kept_line(str(refused.value))
