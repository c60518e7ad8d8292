"""The laws of a toggle, over every declared one and every value: it does what it states, and that alone."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import yaml

from harness.config.requires import OFF, refusals
from harness.config.run import RunConfig, flat, from_plain, get, plain, plain_value, with_fields
from harness.config.validate import check_config
from harness.errors import UserError
from harness.model.config import AFFECTS, ON
from harness.model.layout import table_of_layer
from tests.observe import Observation, changed, make_corpora, observe
from tests.toggle_cases import BASE, BESIDE, CASES, ROUNDED, SAME, TOGGLES, Case, values

pytestmark = [
    pytest.mark.slow,  # every toggle, every choice: minutes in all
    pytest.mark.filterwarnings(
        "ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"
    ),  # at an import
]
ROUNDING = 2e-2  # of a loss of about 5, in bf16

Observe = Callable[[RunConfig], Observation]


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # bit for bit
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Observe:
    """What a configuration makes, observed once."""
    corpora, known = make_corpora(tmp_path_factory.mktemp("corpora")), dict[str, Observation]()

    def see(config: RunConfig) -> Observation:
        key = repr(config)
        if key not in known:
            known[key] = observe(config, corpora)
        return known[key]

    return see


# ---------------------------------------------------------------- the laws, as functions that raise


def check_effect(name: str, effects: dict[Any, set[str]]) -> None:
    """Every value changes something stated, nothing that is not stated, and together they change all of it."""
    stated = set(TOGGLES[name].metadata["affects"])
    for value, found in effects.items():
        extra = found - stated - ({"loss"} if "rounding" in stated else set())
        assert not extra, (
            f"{name}={value} changes {sorted(extra)}, which it does not declare: affects={tuple(sorted(stated))}"
        )
        assert found or (name, value) in SAME, f"{name}={value} changes nothing"
        assert "loss" not in stated or "loss" in found or (name, value) in SAME, (
            f"{name}={value} leaves the losses as they are"
        )
    missing = stated - {"rounding"} - set().union(*effects.values())
    assert not missing, (
        f"{name} declares {sorted(missing)}, but changes no such thing: affects={tuple(sorted(stated))}"
    )


def check_rounding(off: Observation, on: Observation) -> None:
    """The same mathematics: the losses agree as far as the dtypes allow."""
    for a, b in zip(off["loss"][0], on["loss"][0], strict=True):
        assert math.isclose(a, b, abs_tol=ROUNDING), (a, b)


def check_gradients(case: Case, on: Observation) -> None:
    """After the updates every parameter has a gradient, every component of a mixing scalar a gradient that is not zero."""
    tables = table_of_layer(case.on.model)
    for name, grad in on["grads"].items():
        assert grad is not None, f"{name} has no gradient"
        live = grad.ne(0)
        if name.endswith("attn.value_mix"):
            layer = int(name.split(".")[1])
            if case.on.model.value_residual is not None and layer == 0:
                continue  # the first layer's values are mixed with themselves
            if grad.ndim and tables[layer] is None:
                assert not live[1], f"{name}: a layer without a table, yet a gradient to its share"
                live = live[:1]
        assert live.all() if grad.ndim < 2 and grad.numel() < 100 else live.any(), (
            f"{name} has a gradient of zeros"
        )


# ---------------------------------------------------------------- the laws, over everything

BY_NAME = {name: [c for c in CASES if c.name == name] for name in TOGGLES}


def effects(name: str, see: Observe) -> dict[Any, set[str]]:
    return {case.value: changed(see(case.off), see(case.on)) for case in BY_NAME[name]}


@pytest.mark.parametrize("name", TOGGLES)
def test_on_changes_what_it_states_and_only_that(name: str, seen: Observe) -> None:
    assert set(TOGGLES[name].metadata["affects"]) <= set(AFFECTS)
    check_effect(name, effects(name, seen))


@pytest.mark.parametrize(
    "name", [n for n, f in TOGGLES.items() if "rounding" in f.metadata["affects"]]
)
def test_the_same_mathematics_gives_the_same_losses(name: str, seen: Observe) -> None:
    for case in BY_NAME[name]:
        check_rounding(seen(case.off), seen(case.on))


@pytest.mark.parametrize("name", TOGGLES)
def test_what_says_where_to_round_does_nothing_in_fp32(name: str, seen: Observe) -> None:
    """And what shows in the records' precision alone says so (a kernel is another in fp32, too)."""
    rounds = TOGGLES[name].metadata.get("rounds", False)
    needs_rounding = ROUNDED.items() <= BESIDE.get(name, {}).items()
    assert rounds == (needs_rounding and name != "model.attn_kernel")
    for case in BY_NAME[name] if rounds else []:
        off, on = (seen(with_fields(c, {"precision.mode": "fp32"})) for c in (case.off, case.on))
        assert changed(off, on) == set()


def test_the_same_configuration_twice_is_the_same_bit_for_bit(seen: Observe, tmp_path) -> None:
    """Without which `changed` would mean nothing; the configuration is read back from what config.yaml holds."""
    again = observe(from_plain(plain(BASE)), make_corpora(tmp_path))
    assert changed(seen(BASE), again) == set()


@pytest.mark.parametrize("name", TOGGLES)
def test_off_is_the_baseline_bit_for_bit(name: str) -> None:
    """Switched on and off again, a toggle leaves the very configuration of the baseline, so everything that is built from it."""
    for case in BY_NAME[name]:
        assert with_fields(case.on, {k: get(case.off, k) for k in differing(case)}) == case.off
        off = from_plain(plain(case.off))
        assert off == case.off
        assert repr(off) == repr(case.off)


def differing(case: Case) -> set[str]:
    return {n for n in TOGGLES if get(case.on, n) != get(case.off, n)}


@pytest.mark.parametrize("name", TOGGLES)
def test_a_toggle_is_tried_alone(name: str) -> None:
    """Between on and off differs the toggle itself, and what could not stand beside its absence."""
    allowed = {"model.attn_mask": {"model.attn_kernel"}}
    for case in BY_NAME[name]:
        assert differing(case) <= {name} | allowed.get(name, set())
        assert name in differing(case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_parameter_without_gradient(case: Case, seen: Observe) -> None:
    observed = seen(case.on)
    assert observed["status"] == "finished"
    check_gradients(case, observed)


# ---------------------------------------------------------------- the laws bite


@pytest.mark.parametrize("name", TOGGLES)
def test_a_toggle_that_nobody_reads_breaks_a_law(name: str, seen: Observe) -> None:
    """Its field replaced by the value that is off, just before anything is built."""
    ignored = {case.value: changed(seen(case.off), seen(with_fields(case.on, {name: get(case.off, name)})))
               for case in BY_NAME[name] if name not in ("model.attn_mask",)}  # fmt: skip
    if name == "model.attn_mask":  # the dense kernel without its mask: nothing can be built
        with pytest.raises(TypeError):
            seen(with_fields(BY_NAME[name][0].on, {name: "causal"}))
        return
    with pytest.raises(AssertionError):
        check_effect(name, ignored)


@pytest.mark.parametrize("name", TOGGLES)
def test_an_effect_that_stays_away_breaks_the_law(name: str, seen: Observe) -> None:
    """One reader of several has forgotten the toggle: one aspect stays as it was."""
    found = effects(name, seen)
    for aspect in set(TOGGLES[name].metadata["affects"]) - {"rounding"}:
        with pytest.raises(AssertionError):
            check_effect(name, {value: aspects - {aspect} for value, aspects in found.items()})


@pytest.mark.parametrize("aspect", sorted(set(AFFECTS) - {"rounding"}))
def test_an_effect_that_is_not_stated_breaks_the_law(aspect: str, seen: Observe) -> None:
    name = next(
        n for n, f in TOGGLES.items() if not {aspect, "rounding"} & set(f.metadata["affects"])
    )
    with pytest.raises(AssertionError, match=aspect):
        check_effect(
            name, {value: aspects | {aspect} for value, aspects in effects(name, seen).items()}
        )


def test_a_missing_gradient_breaks_the_law(seen: Observe) -> None:
    case = next(c for c in CASES if c.name == "model.x0_mix")
    on = seen(case.on)
    for broken in (None, torch.tensor([0.0, 1.0])):
        with pytest.raises(AssertionError, match="residual_mix"):
            check_gradients(case, {**on, "grads": {**on["grads"], "blocks.1.residual_mix": broken}})


def test_a_toggle_without_an_example_is_told_to_declare_one() -> None:
    with pytest.raises(AssertionError, match="declare example="):
        values("optim.ns_steps", type("F", (), {"metadata": {"record": "own"}, "default": 5}))  # type: ignore[arg-type]


# ---------------------------------------------------------------- requirements


def fits(value: Any, accepted: Any, default: Any) -> bool:
    """Whether a value is among those accepted, or, where it must be on, is: layer 0 is, where null is off."""
    if accepted == ON:
        return value not in (None, (), False) or (
            value == 0 and value is not False and default is None
        )
    return value in accepted


def refused() -> list[Any]:
    """Every entry of every `requires` and `conflicts`: a configuration that breaks it, the toggle, the other field."""
    out = []
    for name, f in TOGGLES.items():
        for kind in ("requires", "conflicts"):
            for condition, others in f.metadata.get(kind, {}).items():
                case = next(c for c in BY_NAME[name] if condition in ("*", c.value))
                for other, accepted in others.items():
                    possible = [TOGGLES[other].default, *values(other, TOGGLES[other])]
                    default, clash = TOGGLES[other].default, kind == "conflicts"
                    bad = next(v for v in possible if fits(v, accepted, default) == clash)
                    label = f"{name}={case.value} {kind} {other}"
                    out.append(
                        pytest.param(with_fields(case.on, {other: bad}), name, other, id=label)
                    )
    return out


def assert_is_yaml_of(text: str, value: Any) -> None:
    read = yaml.safe_load(text)
    assert (read, type(read)) == (plain_value(value), type(plain_value(value)))


@pytest.mark.parametrize(("config", "name", "other"), refused())
def test_a_refused_combination_is_refused_by_name(config: RunConfig, name: str, other: str) -> None:
    (message,) = [
        m
        for m in refusals(config)
        if m.startswith(f"{name}=") and f" {other}" in m.partition("=")[2]
    ]
    assert "\n" not in message
    advice = re.search(
        rf"leave {name} at (.*?)($| or switch {other} off| or {other} at (.*)$)", message
    )
    assert advice is not None
    assert_is_yaml_of(advice[1], TOGGLES[name].default)
    if "conflicts" in message:
        can_be_off = TOGGLES[other].default in OFF
        assert ("switch" in advice[2]) == can_be_off
        if not can_be_off:
            assert_is_yaml_of(advice[3], TOGGLES[other].default)
    else:
        assert f"set {other}, or leave" in message
        assert_is_yaml_of(
            message.partition("but it is ")[2].partition(": set ")[0], flat(config)[other]
        )
    with pytest.raises(UserError):
        check_config(config)
