"""An idea of one's own as files that work at once: what `ablate new-change` writes.

A plug-in and its experiment, copied from experiments/ideas, and its law test.
"""

import importlib.util
import keyword
import re
from pathlib import Path

from harness.config.presets import PACKAGED
from harness.errors import UserError, near

# what an idea changes -> the example in experiments/ideas that its files are copied from
KINDS = {
    "model": "attention_gate",
    "loss": "z_loss",
    "optimizer": "lion",
    "schedule": "cosine",
    "data": "by_length",
}
# the file, the experiment, the toggles: not a word of a sentence, nor a name in the code
NAMES_ITSELF = r'(?<=^"""){0}(?=: )|(?<=^name: ){0}$|(?<=\[){0}(?=\.py\])|(?<=plugin\.){0}\b'
LAWS = '''\
"""The laws of an idea, for NAME. Run: pytest -x test_NAME.py"""

from pathlib import Path

import pytest

from harness.errors import UserError
from harness.experiment.laws import LAWS, Subject

EXPERIMENT = Path(__file__).parent / "experiments" / "NAME.yaml"


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    try:
        return Subject(EXPERIMENT, tmp_path_factory.mktemp("corpus"))
    except UserError as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None


@pytest.mark.parametrize("law", LAWS)
def test_law(law: str, subject: Subject) -> None:
    LAWS[law](subject)
'''


def texts(name: str, kind: str) -> dict[str, str]:
    """The files of an idea by their paths, its own name where the example names itself."""
    example = KINDS[kind]
    folder = PACKAGED / "ideas"
    itself = re.compile(NAMES_ITSELF.format(example), re.MULTILINE)

    def renamed(path: Path) -> str:
        return itself.sub(name, path.read_text(encoding="utf-8"))

    experiment = renamed(folder / f"{example}.yaml")
    return {
        f"{name}.py": renamed(folder / f"{example}.py"),
        f"experiments/{name}.yaml": experiment.replace(f"[{name}.py]", f"[../{name}.py]"),
        f"test_{name}.py": LAWS.replace("NAME", name),
    }


def new_change(name: str, folder: Path, kind: str = "model") -> list[Path]:
    """Write the three files of an idea into a folder. kind: one of KINDS.

    Raises UserError for a bad name or kind, or a file that is there.
    """
    _check_file_name(name)
    if kind not in KINDS:
        raise UserError(f"new-change: --kind {kind}: no such kind{near(kind, KINDS)}")
    contents = {folder / path: text for path, text in texts(name, kind).items()}
    for path in contents:
        if path.exists():
            raise UserError(f"{path}: is there already: choose another name, or move it away")
    if importlib.util.find_spec(name) is not None:
        raise UserError(
            f"new-change: {name}.py would hide the module '{name}': choose another name, "
            f"such as my_{name}"
        )
    for path, text in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(contents)


def _check_file_name(name: str) -> None:
    """Refuse what cannot name a Python module."""
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,79}", name) and not keyword.iskeyword(name):
        return
    hint = ""
    mended = name.replace("-", "_")
    if mended != name and mended.isidentifier():
        hint = f"; did you mean '{mended}'?"
    raise UserError(
        f"new-change: '{name}' cannot name a Python file: use letters, digits and '_', "
        f"a letter first{hint}"
    )
