"""What is counted in an H100's code, and what a process that pretends to have the card is told. No compiler runs here."""

import importlib
import io
import json
import os
import subprocess
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor

from harness.bench import traffic as traffic_module
from harness.bench.steps import resolve
from harness.bench.traffic import Graph, Network, build, lowered, traffic
from harness.errors import UserError

SOURCE = "tl.load(x); tl_math.cos(a); libdevice.sin(b); tl_math.exp(c)"
CODE = f"""
first = async_compile.triton('first', '''{SOURCE}''', device_str='cuda')
second = async_compile.triton('second', '''tl.sin(x)
tl.cosine(y)''', device_str='cuda')
first.run(a, grid=g)
second.run(b)
first.run(c)
"""


class Target(SimpleNamespace):
    def __init__(self, backend: str, arch: int, warp_size: int) -> None:
        super().__init__(backend=backend, arch=arch, warp_size=warp_size)


@pytest.fixture
def lowering(monkeypatch: pytest.MonkeyPatch) -> Any:
    """harness.bench.lowering, imported where something stands for triton."""
    driver = SimpleNamespace(set_active=lambda one: None)
    parts = {
        "triton": {"runtime": SimpleNamespace(driver=driver)},
        "triton.backends": {},
        "triton.backends.compiler": {"GPUTarget": Target},
        "triton.backends.driver": {"DriverBase": object},
    }
    with warnings.catch_warnings(action="ignore"):  # torch's own, of what it imports
        importlib.import_module("torch._inductor.compile_fx")
    for name, content in parts.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    yield importlib.import_module("harness.bench.lowering")
    for name in ("harness.bench.lowering", "harness.bench.pretend"):
        sys.modules.pop(name, None)


def node(size: int, *, extern: bool) -> SimpleNamespace:
    return SimpleNamespace(is_extern=lambda: extern, get_read_write_buffers_sizes=lambda: size)


def lowered_graph() -> SimpleNamespace:
    nodes = [node(1000, extern=False), node(24, extern=False), node(7, extern=True)]
    code = (SimpleNamespace(value=CODE), None)
    return SimpleNamespace(codegen=lambda: code, scheduler=SimpleNamespace(nodes=nodes))


def test_bytes_kernels_launches_and_angles_are_counted_in_the_code(lowering: Any) -> None:
    made = lowering.Lowering()
    for name in ("forward", "backward"):
        with pytest.raises(lowering.Lowered):
            made.keep(lowered_graph())
        assert made.graphs[-1] == Graph(
            graph=name, kernel_bytes=1024, product_bytes=7, kernels=2, launches=3, angles=3
        )
    assert made.code == [CODE, CODE]


def test_a_graph_that_gave_code_is_itself_called_and_one_that_gave_none_is_an_error(
    lowering: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = lowering.Lowering()

    def inner(graph: Any, inputs: Any, **how: Any) -> None:
        made.keep(lowered_graph())

    class Doubles(torch.nn.Module):
        def forward(self, x: int, y: int) -> int:
            return 2 * x + y

    graph = torch.fx.symbolic_trace(Doubles())
    monkeypatch.setattr(lowering, "compile_fx_inner", inner)
    run = made.compile(graph, [3, 4])
    assert run([3, 4]) == 10 and run._boxed_call is True

    def broken(graph: Any, inputs: Any, **how: Any) -> None:
        raise RuntimeError("no code")

    monkeypatch.setattr(lowering, "compile_fx_inner", broken)
    with pytest.raises(RuntimeError, match="no code"):
        made.compile(graph, [3, 4])


def test_a_kernel_is_too_large_where_its_smallest_form_wants_more_than_a_block_may(
    lowering: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = 227 * 1024
    shared = {"first": [room + 9, room + 1], "second": [room + 5, room], "third": [room, 9]}
    third = "third = async_compile.triton('third', '''tl.load(x)''', device_str='cuda')\n"
    warmed: list[bool] = []

    def load(source: str) -> SimpleNamespace:
        kernels = {}
        for name, sizes in shared.items():
            forms = [SimpleNamespace(kernel=SimpleNamespace(shared=n)) for n in sizes[:1]]
            inside = SimpleNamespace(metadata=SimpleNamespace(shared=sizes[1]))
            forms.append(SimpleNamespace(kernel=inside))

            def precompile(*, warm_cache_only: bool) -> None:
                warmed.append(warm_cache_only)

            kernels[name] = SimpleNamespace(precompile=precompile, compile_results=forms)
        return SimpleNamespace(**kernels)

    monkeypatch.setattr(lowering.PyCodeCache, "load", load)
    plain = Graph(graph="forward", kernel_bytes=1, product_bytes=2, kernels=2, launches=3, angles=0)
    made = lowering.with_binaries(plain, CODE + third)
    assert made.binaries == 3 and made.too_large == [f"first: {room + 1} bytes"]
    assert asdict(made) | {"binaries": None, "too_large": ()} == asdict(plain)
    assert warmed == [True, True, True]


@pytest.mark.parametrize(
    ("preset", "rows", "descends"), [("r08", 4, False), ("r08", 2, True), ("r18", 1, False)]
)
def test_the_first_update_of_one_pass_is_what_is_lowered(
    preset: str, rows: int, descends: bool, lowering: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a card, of tensors that hold nothing, by a compiler that keeps the code of every graph."""
    told: list[Any] = []
    compiled: dict[str, Any] = {}

    class OfOnePass:
        def __init__(self, config: Any, tokens: Any, *, seed: int, device: str) -> None:
            told.append((config.system.compile, tokens.vocab_size, tokens.separator, device))
            told.append((tokens.seq_len, len(tokens.texts)))
            self.forward = "plain"

        def set_step(self, step: int) -> str:
            return f"window of {step}"

        def gradients(self, batches: Any, window: str) -> None:
            ((ids, targets),) = batches
            told.append((self.forward, window))
            told.extend((tuple(t.shape), t.dtype) for t in (ids, targets))
            assert isinstance(ids + outside, FakeTensor) and isinstance(targets, FakeTensor)
            compiled["backend"]("a graph", ["inputs"])

    def compile_fx(graph: str, inputs: list[str], *, inner_compile: Any) -> None:
        told.append((graph, inputs))
        with pytest.raises(lowering.Lowered):
            getattr(lowering.GraphLowering, lowering.LOADS)(lowered_graph())
        compiled["inner"] = inner_compile

    def zeros(*sizes: int, device: torch.device, **how: Any) -> torch.Tensor:
        told.append(str(device))
        return plain_zeros(*sizes, **how)

    plain_zeros, outside = torch.zeros, torch.ones(1, dtype=torch.int32)
    monkeypatch.setattr(torch, "zeros", zeros)
    monkeypatch.setattr(lowering.GraphLowering, lowering.LOADS, None, raising=False)
    monkeypatch.setattr(lowering, "Core", OfOnePass)
    monkeypatch.setattr(lowering, "compile_fx", compile_fx)
    monkeypatch.setattr(
        torch, "compile", lambda model, **how: compiled.update(how) or f"{model}, compiled"
    )
    settings = {"data.micro_tokens": rows * 1024, "data.seq_len": 1024}
    settings |= {"system.coordinate_descent": descends}
    config, _ = resolve(preset, scale="gpt2", device="cuda", settings=settings)
    inductor = torch._inductor.config
    with inductor.patch(coordinate_descent_tuning=not descends):
        made = lowering.lower(config)
        assert inductor.coordinate_descent_tuning is descends
    shape, inputs = (1, rows, 1024), getattr(torch, config.data.input_dtype)
    assert told == [
        *(("off", 50257, 50256, "cuda"), (1024, 50257), "cuda:0", "cuda:0"),
        *(("plain, compiled", "window of 0"), (shape, inputs), (shape, torch.int64)),
        ("a graph", ["inputs"]),
    ]
    assert [graph.graph for graph in made.graphs] == ["forward"] and compiled["dynamic"] is False
    assert compiled["inner"] == made.compile


def test_an_attention_library_is_one_causal_call_without_dropout(
    lowering: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []

    def flash(*given: Any, **options: Any) -> tuple[str, str]:
        asked.append((given, options))
        return "what heads add", "a sum per row"

    monkeypatch.setattr(torch.ops.aten, "_scaled_dot_product_flash_attention", flash)
    assert lowering.library_attention("q", "k", "v", "no mask", 0.125) == "what heads add"
    assert lowering.library_attention("q", "k", "v", "no mask") == "what heads add"
    assert [options for _, options in asked] == [{"scale": 0.125}, {"scale": None}]
    assert {given for given, _ in asked} == {("q", "k", "v", 0.0, True)}


def test_every_network_is_a_line_of_its_graphs(
    lowering: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = Graph(graph="forward", kernel_bytes=1, product_bytes=2, kernels=0, launches=0, angles=0)
    told: list[Any] = []

    def lower(config: Any) -> SimpleNamespace:
        told.append(config.model.n_layer)
        return SimpleNamespace(graphs=[graph], code=["no kernel"])

    for name in lowering.LIBRARIES:
        monkeypatch.setitem(lowering.KERNELS, name, lowering.KERNELS[name])
    monkeypatch.setattr(lowering, "lower", lower)
    monkeypatch.setattr(lowering, "an_h100", lambda: told.append("pretended"))
    monkeypatch.setenv("LD_PRELOAD", "")
    asked = [Network("r08", {"model.n_layer": 4}), Network("r08", scale="tiny", binaries=True)]
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps([asdict(n) for n in asked])))
    lowering.main()
    plain, with_binaries = map(json.loads, capsys.readouterr().out.splitlines())
    assert told == ["pretended", 4, 8] and "LD_PRELOAD" not in os.environ
    assert (plain[0]["binaries"], with_binaries[0]["binaries"]) == (None, 0)
    assert {lowering.KERNELS[n] for n in ("sdpa", "cudnn", "flash")} == {lowering.library_attention}


def test_the_process_sees_an_h100_as_its_data_sheet_has_it(lowering: Any) -> None:
    """In a fork: what is changed there stays changed."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, json.dumps(seen(sys.modules["harness.bench.pretend"])).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        text = told.read()
    os.waitpid(child, 0)
    assert json.loads(text) == {
        "card": ["NVIDIA H100 80GB HBM3", [9, 0], 1, True, 0, True, False],
        "memory": [80 * 2**30, 50 * 2**20, 132, 65536, 2048, 1024, 32],
        "shared": [48 * 1024, 227 * 1024, 228 * 1024],
        "bytes_per_s": 3352,  # in GB: 5120 bits twice a cycle of 2.619 GHz
        "compiler": [90, True, 0, 132],
        "cuda": ["13.0", True],
        "quiet": [None, None, None, None],
        "options": [False, False],
        "driver": [True, "int", "cuda", 90, 32, "cuda:0", 0, 0],
        "random": 16,
        "runs": "nothing can be timed on a card that is not there",
    }


def seen(pretend: Any) -> dict[str, Any]:
    """What torch and its compiler are told, once a card is pretended."""
    active: list[Any] = []
    pretend.triton.runtime.driver.set_active = active.append
    pretend.an_h100()
    card = torch.cuda.get_device_properties(0)
    (driver,) = active
    target = driver.get_current_target()
    try:
        driver.get_benchmarker()
        runs = "no"
    except AssertionError as error:
        runs = str(error)
    compiler = pretend.CudaInterface
    return {
        "card": [
            *(torch.cuda.get_device_name(), torch.cuda.get_device_capability()),
            *(torch.cuda.device_count(), torch.cuda.is_available(), torch.cuda.current_device()),
            *(torch.cuda.is_bf16_supported(), torch.cuda.is_initialized()),
        ],
        "memory": [
            *(card.total_memory, card.L2_cache_size, card.multi_processor_count),
            *(card.regs_per_multiprocessor, card.max_threads_per_multi_processor),
            *(card.max_threads_per_block, card.warp_size),
        ],
        "shared": [
            card.shared_memory_per_block,
            card.shared_memory_per_block_optin,
            card.shared_memory_per_multiprocessor,
        ],
        "bytes_per_s": round(card.memory_bus_width / 8 * 2 * card.memory_clock_rate / 1e6),
        "compiler": [
            *(compiler.get_compute_capability(), compiler.is_triton_capable()),
            compiler.Worker.current_device(),
            compiler.Worker.get_device_properties().multi_processor_count,
        ],
        "cuda": [torch.version.cuda, torch.backends.cuda.is_built()],
        "quiet": [getattr(passes, name)() for passes, name in pretend.WOULD_RUN],
        "options": [
            torch._inductor.config.joint_graph_constant_folding,
            torch._inductor.config.shape_padding,
        ],
        "driver": [
            *(type(driver).is_active(), driver.map_python_to_cpp_type("int")),
            *(target.backend, target.arch, target.warp_size),
            str(driver.get_active_torch_device()),
            *(driver.get_current_device(), driver.get_current_stream(0)),
        ],
        "random": torch.cuda.random.get_rng_state().numel(),
        "runs": runs,
    }


# ---------------------------------------------------------------- the processes around it


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    told: list[tuple[Any, ...]] = []

    def run(command: Any, **how: Any) -> SimpleNamespace:
        told.append((command, how))
        graphs = [dict(graph=g, kernel_bytes=10**9, product_bytes=0, kernels=1, launches=2, angles=0)
                  for g in ("forward", "backward")]  # fmt: skip
        line = json.dumps(graphs)
        return SimpleNamespace(returncode=0, stdout=f"{line}\n{line}\n", stderr="")

    monkeypatch.setattr(subprocess, "run", run)
    return told


def test_the_stand_in_is_built_against_the_torch_that_is_here(
    ran: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    library = build("c++ of mine", tmp_path)
    ((command, _),) = ran
    assert command[0] == "c++ of mine" and library.parent == tmp_path
    assert command[command.index("-o") + 1] == str(library) and "-shared" in command
    (source,) = (part for part in command if part.endswith(".cpp"))
    assert Path(source).is_file()
    folder = Path(torch.__file__).parent
    assert f"-I{folder / 'include'}" in command and f"-L{folder / 'lib'}" in command


def test_networks_are_lowered_in_a_process_that_is_told_of_the_stand_in(
    ran: list[tuple[Any, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    network = Network("r08", {"model.n_layer": 4})
    assert len(lowered([network], tmp_path / "stand_in.so", tmp_path)) == 2
    ((command, how),) = ran
    assert command == [sys.executable, "-m", "harness.bench.lowering"]
    assert json.loads(how["input"]) == [asdict(network)]
    environment = how["env"]
    assert environment["LD_PRELOAD"] == str(tmp_path / "stand_in.so")
    root, mine = environment["PYTHONPATH"].split(os.pathsep)
    assert (Path(root) / "harness" / "bench" / "lowering.py").is_file() and mine == "/mine"
    assert environment["TORCHINDUCTOR_CACHE_DIR"] == environment["TRITON_CACHE_DIR"]
    assert environment["TORCHINDUCTOR_COMPILE_THREADS"] == "1"


def test_the_graphs_of_each_network_have_its_own_times(
    ran: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic_module, "check_tools", lambda: "c++")
    small, large = traffic([Network("r08", scale="tiny"), Network("r08")], bandwidth=2000)
    assert [graph.graph for graph in small] == ["forward", "backward"]
    assert {graph.kernel_ms for graph in (*small, *large)} == {0.5}  # 1 GB at 2000 GB/s
    assert small[0].product_ms < large[0].product_ms
    n_run = len(ran)
    with pytest.raises(UserError, match="unknown record 'r99'"):
        traffic([Network("r08"), Network("r99")])
    assert len(ran) == n_run  # nothing is generated before all of them are known
    with pytest.raises(ValueError):
        traffic([Network("r08")])  # a line more than networks
