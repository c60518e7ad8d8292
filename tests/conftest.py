"""One thread per process: the tests' tensors are tiny, and threads that wait for each other make a busy machine crawl."""

import gc
import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.doubles import doubles

MEMORY = Path("/dev/shm")
ENOUGH_BYTES = 4 << 30  # several times what all of the tests leave at once


def is_roomy(folder: Path) -> bool:
    """Whether there are files that are programs, too, and much space, as in a machine's memory but few containers'."""
    if not os.access(folder, os.W_OK):
        return False
    disk = os.statvfs(folder)
    return not disk.f_flag & os.ST_NOEXEC and disk.f_bavail * disk.f_frsize >= ENOUGH_BYTES


os.environ.setdefault("OMP_NUM_THREADS", "1")
# what one process compiles the next ones read: the tests start hundreds
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
if is_roomy(MEMORY):
    # each test waits for a hundred small files, which nobody needs to find after a power failure
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
# the marks of launches are the tests' own: no test touches the key of who runs them
STATE = tempfile.TemporaryDirectory(prefix="ablate-tests-")
os.environ["XDG_STATE_HOME"] = STATE.name
# how long an example takes is the machine's affair
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


@pytest.fixture(scope="session", autouse=True)
def text_to_train_on():
    """The text that tests train on is there before any of them, whichever comes first: preparing it prints a line."""
    from harness.corpora.index import prepare

    prepare("stdlib")


@pytest.fixture(autouse=True)
def nothing_goes_on():
    """What a failing test has started ends with it."""
    yield
    if "tests.fake_matrix" in sys.modules:
        sys.modules["tests.fake_matrix"].end_started()


@pytest.fixture
def kept_line(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Holds what is said in this case, once, to what it was when somebody last read it."""
    from tests.kept_lines import hold

    names = request.fixturenames
    here = str(request.getfixturevalue("tmp_path")) if "tmp_path" in names else None

    def hold_line(said: str) -> None:
        text = said.replace(here, "FOLDER") if here else said
        hold(request.path, request.node.name, text.removesuffix("\n"))

    return hold_line


ALL_SLOW = re.compile(r"^pytestmark = (?:\[[^\]]*)?pytest\.mark\.slow\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file of slow tests alone is not imported where they are left out: building its cases takes seconds."""
    if collection_path.suffix != ".py" or not config.option.markexpr.startswith("not slow"):
        return None
    return bool(ALL_SLOW.search(collection_path.read_text(encoding="utf-8"))) or None


LONGEST = (
    "test_proof.py",
    "test_ideas_of_records.py",
    "test_compile.py",
    "test_kills.py",
    "test_boxes.py",
    "test_workers.py",
    "test_processors.py",
    "test_faults.py",
    "test_run_commands.py",
    "test_digits.py",
    "test_ab.py",
    "test_folder.py",
    "test_shared_gpus.py",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Doubles are slow tests. The longest files first: a file is one process's, and one of eight minutes at the end would leave the others idle."""
    slow = doubles()
    for item in items:
        if item.nodeid in slow:
            item.add_marker("slow")
            item.add_marker("double")
    order = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.name, len(LONGEST)))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Next to nothing of what is collected is garbage: looking for it, then and in every test, would take its time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
