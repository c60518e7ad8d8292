"""A trunk and what goes on from it are one run cut in two."""

import io
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.config.run import from_plain
from harness.config.schedule import SCHEDULED
from harness.errors import UserError
from harness.run.measured import Measured
from harness.run.spec import TRUNK_FILE, Branch, RunSpec
from harness.training import fork
from harness.training.output import Silent
from harness.training.train import Training, train
from tests.fake_matrix import DEADLINE_S
from tests.forkserver import forkserver
from tests.one_training import STEPS, Recorder

AT = 9  # no validation: what it has not told goes on, too
YARN = {
    "data__seq_len": 512,
    "model__attn_mask": "document",
    "model__attn_kernel": "dense",
    "model__attn_window": "inclusive",
    "model__window_yarn": True,
    "schedule__stages": 3,
    "schedule__windows": (16, 32, 48, 64),
}


def never() -> bool:
    return False


def go(spec: RunSpec, trunk_file: Path = Path()) -> tuple[Measured, Recorder]:
    out = Recorder()
    out.trunk_file = trunk_file
    outcome = train(spec, out=out, device="cpu", stop=never)
    assert outcome.status == "finished", outcome.reason
    return outcome.final, out


def forked(spec: RunSpec, folder: Path, at: int = AT) -> tuple[RunSpec, Path]:
    """The run as it goes on from a trunk of its own configuration, which is trained."""
    branched = replace(spec, branch=Branch(at=at, config=spec.config))
    assert branched.trunk is not None
    final, out = go(branched.trunk)
    assert final.steps == at
    assert all(row["step"] <= at for row in out.rows)
    file = folder / TRUNK_FILE
    file.write_bytes(out.files[TRUNK_FILE])
    return branched, file


@pytest.mark.parametrize(
    ("at", "fields"),
    [
        (AT, {}),
        (AT, {"data__order": "shuffled", "data__val_every": 3}),  # a validation where it forks
        pytest.param(AT, {"timing__protocol": "warmup-restore"}, marks=pytest.mark.slow),
        pytest.param(
            12,
            {"data__first_batch_twice": True, "data__loader": "per_rank"},
            marks=pytest.mark.slow,
        ),
        pytest.param(AT, {"data__loader": "global"}, marks=pytest.mark.slow),
        # a gradient waits for Adam where it forks
        (AT, {"optim__matrix_optimizer": "muon", "optim__adam_every": 2}),
        # memory is kept in another dtype than the matrices
        (
            AT,
            {
                "optim__matrix_optimizer": "muon",
                "optim__weights_dtype": "bf16_mantissa",
                "precision__mode": "record",
                # few tokens: products in bf16 take some processors forty times as long
                "model__n_layer": 1,
                "model__d_model": 64,
                "data__micro_tokens": 64,
                "data__batch_tokens": 64,
                "data__val_tokens": 64,
            },
        ),
        # rotary tables have followed the window where it forks, and its warm-up put them back
        pytest.param(AT, {**YARN, "timing__protocol": "warmup-restore"}, marks=pytest.mark.slow),
    ],
    ids=["plain", "shuffled", "warmed", "twice", "global", "waiting", "bits", "yarn"],
)
def test_a_run_cut_in_two_has_the_losses_of_the_whole(
    spec_of: Callable[..., RunSpec], tmp_path: Path, at: int, fields: dict[str, Any]
) -> None:
    spec = spec_of(**fields)
    whole, of_whole = go(spec)
    branched, file = forked(spec, tmp_path, at)
    final, out = go(branched, file)
    assert out.losses() == of_whole.losses()
    assert final.val_loss == whole.val_loss
    assert (final.steps, final.tokens) == (STEPS, whole.tokens)


@pytest.mark.parametrize("buffers", [False, True])
def test_after_the_warm_up_rotary_tables_are_those_of_their_windows(
    spec_of: Callable[..., RunSpec], buffers: bool
) -> None:
    """It ends in the second stage, of two updates."""
    fields = {**YARN, "schedule__stages": 2, "schedule__windows": (16, 32), "schedule__steps": 2}
    spec = spec_of(
        **fields, schedule__warmup_steps=0, schedule__cooldown_steps=1, model__rope_buffers=buffers
    )
    trainings = [Training(spec, device="cpu", out=Silent()) for _ in range(2)]
    trainings[0].warm_up()
    tables = []
    for training in trainings:
        training.core.set_window(1)
        tables.append(training.core.model.rotary(64))
    for one, other in zip(*tables, strict=True):
        assert torch.equal(one, other)


def test_the_clock_counts_on_from_the_trunk(
    spec_of: Callable[..., RunSpec], tmp_path: Path
) -> None:
    branched, file = forked(spec_of(timing__protocol="warmup-restore"), tmp_path)
    trunk = torch.load(file, weights_only=True)
    out = Recorder()
    out.trunk_file = file
    outcome = train(branched, out=out, device="cpu", stop=never)
    own_s = outcome.wall["train_s"]
    assert outcome.timed is not None
    timed_s = sum(end - began for began, end in outcome.timed)
    before_s = trunk["clock"]["elapsed_s"]
    assert outcome.final.train_time_s == pytest.approx(before_s + timed_s)
    assert own_s <= timed_s < outcome.final.train_time_s
    assert outcome.wall["trunk_s"] == before_s
    times = [ms for row in out.rows for ms in row.get("step_times_ms", ())]
    assert len(times) == STEPS


def test_a_trunk_hands_on_its_first_and_its_last_validation(
    spec_of: Callable[..., RunSpec], tmp_path: Path
) -> None:
    """What is stopped before a validation of its own has the trunk's last one."""
    spec, out = spec_of(), Recorder()
    trunk = Training(spec, device="cpu", out=out)
    trunk.first_val, trunk.last_val = 9.0, 4.0
    fork.save_trunk(trunk, AT)
    file = tmp_path / TRUNK_FILE
    file.write_bytes(out.files[TRUNK_FILE])
    branched = replace(spec, branch=Branch(at=AT, config=spec.config))
    training = Training(branched, device="cpu", out=out)
    fork.go_on_from(training, file)
    assert training.run(lambda: True) == (AT, "interrupted")
    assert training.final(AT).val_loss == 4.0
    assert not training.has_exploded(18.0) and training.has_exploded(18.1)


@pytest.mark.parametrize("rank", [0, 1])
def test_the_first_process_of_several_saves_the_states_of_all(
    rank: int, spec_of: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Recorder()
    training = Training(spec_of(), device="cpu", out=out)
    training.rank, training.core.world = rank, 2

    def gather_object(state: Any, states: Any) -> None:
        assert (states is None) == (rank != 0)
        if states is not None:
            states[:] = [state, {"of": "the other"}]

    monkeypatch.setattr(fork.dist, "get_rank", lambda: rank)
    monkeypatch.setattr(fork.dist, "gather_object", gather_object)
    fork.save_trunk(training, 7)
    assert [*out.files] == ([TRUNK_FILE] if rank == 0 else [])
    if rank == 0:
        trunk = torch.load(io.BytesIO(out.files[TRUNK_FILE]), weights_only=True)
        first, other = trunk["ranks"]
        assert (trunk["step"], other) == (7, {"of": "the other"})
        assert first.keys() == {"optimizers", "random", "losses", "waiting"}


def test_random_state_goes_on(spec_of: Callable[..., RunSpec], tmp_path: Path) -> None:
    """Of a trunk whose plug-in drew, whatever this process drew before."""
    branched, file = forked(spec_of(), tmp_path)
    trunk, drawn = torch.load(file, weights_only=True), torch.Generator().manual_seed(12345)
    trunk["ranks"][0]["random"]["cpu"] = drawn.get_state()
    torch.save(trunk, file)
    out = Recorder()
    out.trunk_file = file
    states = []
    heartbeat = out.heartbeat
    out.heartbeat = lambda *at: (states.append(torch.get_rng_state()), heartbeat(*at))[1]  # type: ignore[method-assign]
    train(branched, out=out, device="cpu", stop=never)
    assert torch.equal(states[0], drawn.get_state())


def test_a_damaged_trunk_is_one_line(spec_of: Callable[..., RunSpec], tmp_path: Path) -> None:
    branched, file = forked(spec_of(), tmp_path)
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(UserError, match=r"trunk.pt, from which this run goes on, cannot be read"):
        go(branched, file)
    with pytest.raises(UserError, match="cannot be read"):
        go(branched, tmp_path / "none.pt")
    torch.save({"step": AT + 1}, file)
    with pytest.raises(UserError, match=rf"trunk.pt is the state at update {AT + 1}, not {AT}"):
        go(branched, file)


def test_why_a_trunk_cannot_be_read_is_told_in_its_first_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("no zip archive\nat a place\nof torch")

    monkeypatch.setattr(torch, "load", fails)
    training: Any = None
    with pytest.raises(UserError) as refused:
        fork.go_on_from(training, Path("runs/r/trunk.pt"))
    assert str(refused.value) == (
        "runs/r/trunk.pt, from which this run goes on, cannot be read (RuntimeError: no zip "
        "archive): remove the trunk's folder, and run the experiment again"
    )


def test_names_differ_by_trunk_alone(spec_of: Callable[..., RunSpec]) -> None:
    spec = spec_of()
    branch = Branch(at=AT, config=spec.config)
    arm = replace(spec, branch=branch)
    other = replace(spec, branch=replace(branch, at=AT + 1))
    assert arm.trunk is not None
    assert len({s.run_id for s in (spec, arm, other, arm.trunk)}) == 4
    assert (arm.own_steps, arm.trunk.own_steps) == (STEPS - AT, AT)
    assert RunSpec.from_mapping(arm.to_mapping()) == arm
    assert RunSpec.from_mapping(arm.trunk.to_mapping()) == arm.trunk
    late = {**spec.config, "schedule": {**spec.config["schedule"], "cooldown_steps": 3}}
    assert replace(arm, config=late).trunk == arm.trunk
    assert spec.at_seed(5).trunk is None
    assert arm.at_seed(5).trunk == arm.trunk.at_seed(5)


def rank(number: int, spec: RunSpec, folder: str) -> None:
    """A process of two: the whole run, then the trunk and what goes on from it."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(number), "WORLD_SIZE": "2", "LOCAL_RANK": str(number)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=number, world_size=2
    )
    file = Path(folder) / TRUNK_FILE
    branched = replace(spec, branch=Branch(at=AT, config=spec.config))
    assert branched.trunk is not None
    losses = []
    for run in (spec, branched.trunk, branched):
        out: Any = Recorder() if number == 0 else Silent(trunk_file=file)
        if number == 0:
            out.trunk_file = file
        assert train(run, out=out, device="cpu", stop=never).status == "finished"
        if number == 0:
            losses.append(out.losses())
            if run.until:
                file.write_bytes(out.files[TRUNK_FILE])
        torch.distributed.barrier()
    if number == 0:
        torch.save(losses, f"{folder}/losses.pt")
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may abort a regular exit


@pytest.mark.slow
def test_two_processes_go_on_as_they_were(spec_of: Callable[..., RunSpec], tmp_path: Path) -> None:
    """Momenta live on the process that computes their matrices alone."""
    sizes = {"data__ranks": 2, "data__micro_tokens": 256}
    spec = replace(spec_of(optim__muon_comm="flat_all_reduce", **sizes), world_size=2)
    context = forkserver()
    processes = [context.Process(target=rank, args=(n, spec, str(tmp_path))) for n in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(DEADLINE_S)
    assert [process.exitcode for process in processes] == [0, 0]
    whole, _, branched = torch.load(tmp_path / "losses.pt", weights_only=False)
    assert branched == whole
    held = torch.load(tmp_path / TRUNK_FILE, weights_only=True)["ranks"]
    momenta = [len(r["optimizers"][-1]["state"]) for r in held]
    config = from_plain(spec.config)
    assert all(0 < n < sum(momenta) for n in momenta), config.optim.muon_comm


class Asked:
    """A part of a configuration that notes what of it is read."""

    def __init__(self, section: str, part: Any, read: set[str]) -> None:
        self.__dict__ |= {"_section": section, "_part": part, "_read": read}

    def __getattr__(self, name: str) -> Any:
        self._read.add(f"{self._section}.{name}")
        return getattr(self._part, name)


def test_scheduled_toggles_are_those_that_an_update_reads(
    spec_of: Callable[..., RunSpec],
) -> None:
    training = Training(spec_of(), device="cpu", out=Recorder())  # type: ignore[arg-type]
    config, read = training.config, set[str]()
    lists = {"stage_rates": (1.0,), "windows": (64,), "windows_short": (32,)}
    staged = replace(config, schedule=replace(config.schedule, **lists))
    window = {"attn_window": "token", "attn_window_layers": (0,), "window_yarn": True}
    model = replace(config.model, **window)
    windowed = replace(staged, model=model)
    sections = ("model", "optim", "schedule", "loss", "data", "precision", "system", "timing")
    by_section = {s: Asked(s, getattr(windowed, s), read) for s in sections}
    asked: Any = type("Config", (), {**by_section, "plugin": {}})()
    training.core.config = asked
    training.core.window = torch.zeros((2,), dtype=torch.int32)
    training.core.set_step(0)
    in_a_part = {f"model.{name}" for name in window} | {"optim.tie_until"}
    assert read == {*SCHEDULED, *in_a_part}
