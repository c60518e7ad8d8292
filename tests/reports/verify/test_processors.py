"""A page written on one processor is true on every other: the last bits of a product differ, no figure may depend on them.

OPENBLAS_CORETYPE makes OpenBLAS take the kernels of another processor, NPY_DISABLE_CPU_FEATURES numpy its plain loops.
"""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy._core import _multiarray_umath as numpy_core

from reports import load
from reports.page.write import write_report
from reports.verify.verify import verify
from tests.findings import PAGES
from tests.report_arms import FACTORIAL, LADDER
from tests.report_fixtures import write_experiment

ROOT = Path(__file__).resolve().parents[3]
NEEDS = {  # core type -> the instructions that its kernels use
    "Prescott": {"pni"},
    "Sandybridge": {"avx"},
    "Haswell": {"avx2", "fma"},
    "SkylakeX": {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"},
    "Nehalem": {"sse4_2"},
    "Zen": {"avx2", "fma"},
}
OLDEST = "Prescott"
PLAIN = "plain loops"  # of machines whose core types nobody here knows
OWN = "this processor"
NAMES = ("ladder", "factorial", "ragged", "budgets", "early")
READ = """
import json, sys
from pathlib import Path
import numpy as np
from reports import load
from reports.page.write import write_report
from reports.verify.verify import verify

results, out, *pages = map(Path, sys.argv[1:])
names = sys.stdin.read().split()
write_report([load(name, results=results) for name in names], out)
pages = [page for page in pages if page.read_bytes() != out.read_bytes()]
random = np.random.default_rng(0).normal(size=(2, 97, 97))
said = {
    "found": {str(page): verify(page) for page in (*pages, out)},
    "bits": (random[0] @ random[1]).tobytes().hex()[:4000],
    "wrong": float(abs(random[0] @ random[1] - np.einsum("ij,jk", *random)).max()),
}
print(json.dumps(said))
"""


def core_types() -> list[str]:
    """Three of which this processor has the instructions, the first of NEEDS first, and what it takes by itself."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return [PLAIN, OWN]
    try:
        line = next(
            s for s in Path("/proc/cpuinfo").read_text().splitlines() if s.startswith("flags")
        )
    except (OSError, StopIteration):
        return [OLDEST, OWN]  # every x86-64 processor of this century
    flags = set(line.split())
    return [*[name for name, needed in NEEDS.items() if needed <= flags][:3], OWN]


TYPES = core_types()
# the oldest; what this processor takes by itself other tests draw pages with
QUICK = TYPES[0]
CORES = [pytest.param(core, marks=[pytest.mark.slow] * (core != QUICK)) for core in TYPES]


def dispatched() -> str:
    """The features for which this numpy has loops of their own, of those that this processor has."""
    return " ".join(f for f in numpy_core.__cpu_dispatch__ if numpy_core.__cpu_features__[f])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of every kind of analysis, and their page as this processor writes it."""
    root = tmp_path_factory.mktemp("processors")
    holes = {("untied_head", 1): "failed", ("r07", 3): "oom"}
    lost = {("r08", 0): "diverged", ("untied_head", 3): "pending"}
    write_experiment(root, name="ladder", n_seeds=7, published="r08")
    write_experiment(root, name="factorial", arms=FACTORIAL, n_seeds=4, design="factorial")
    write_experiment(
        root, name="ragged", arms=LADDER[:4], n_seeds=5, design="add-one", outcome=holes
    )
    write_experiment(
        root,
        name="budgets",
        arms=LADDER[:3],
        n_seeds=3,
        budgets=(200, 300, 400),
        single_steps=False,
    )
    write_experiment(root, name="early", arms=LADDER[:3], n_seeds=6, outcome=lost)
    write_report([load(name, results=root) for name in NAMES], root / "here.html")
    return root


SAID: dict[tuple, dict] = {}  # by core type and pages


def said(core: str, written: Path, pages: tuple[Path, ...] = ()) -> dict:
    """What a process says that computes as such a processor does; the oldest one has none of numpy's loops either.

    pages: that it reads beside the one that was written here and its own."""
    if (core, pages) not in SAID:
        plain = {"NPY_DISABLE_CPU_FEATURES": dispatched()} if core in (OLDEST, PLAIN) else {}
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            **({"OPENBLAS_CORETYPE": core} if core in NEEDS else {}),
            **plain,
        }
        command = [
            sys.executable,
            "-c",
            READ,
            str(written),
            str(written / f"{core}.html"),
            str(written / "here.html"),
        ]
        done = subprocess.run(
            [*command, *map(str, pages)],
            env=environment,
            input=" ".join(NAMES),
            cwd=written,
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stderr) == (0, ""), f"{core}: {done.stderr}"
        SAID[core, pages] = json.loads(done.stdout)
    return SAID[core, pages]


def test_there_are_pages_and_core_types_to_try():
    assert len(PAGES) > 1
    assert len(TYPES) >= (4 if "Haswell" in TYPES else 2)
    assert QUICK in (OLDEST, PLAIN)


def untrue(found: dict[str, list[str]]) -> dict[str, list[str]]:
    return {page: sentences for page, sentences in found.items() if sentences}


@pytest.mark.parametrize("core", CORES)
def test_the_page_written_here_and_its_own_are_true_there(core, written):
    found = said(core, written)["found"]
    assert str(written / f"{core}.html") in found
    assert untrue(found) == {}


@pytest.mark.slow
@pytest.mark.parametrize("core", TYPES)
def test_every_published_page_is_true_there(core, written):
    found = said(core, written, tuple(PAGES))["found"]
    assert len(found) >= len(PAGES) + 1
    assert untrue(found) == {}


@pytest.mark.parametrize("core", CORES)
def test_a_page_written_there_is_true_here_and_the_same_page(core, written):
    said(core, written)
    there, here = written / f"{core}.html", written / "here.html"
    if there.read_text() != here.read_text():
        assert verify(there) == []  # what matters more, so it is said first
    assert there.read_text() == here.read_text()


@pytest.mark.skipif(
    "openblas" not in np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"],
    reason="this numpy multiplies without OpenBLAS, so there is one kind of it to try",
)
@pytest.mark.parametrize("core", CORES)
def test_a_core_type_computes_as_well_and_the_oldest_has_other_last_bits(core, written):
    """Else nothing above was tried."""
    random = np.random.default_rng(0).normal(size=(2, 97, 97))
    here = (random[0] @ random[1]).tobytes().hex()[:4000]
    assert said(core, written)["wrong"] < 1e-12
    if core == OLDEST and "Haswell" in TYPES:  # which adds and multiplies at once
        assert said(core, written)["bits"] != here
