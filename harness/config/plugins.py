"""Toggles of your own, outside the tree: Python files that declare fields and change a run.

A plug-in file holds a frozen dataclass `Toggles`, its fields made by `model.config.toggle`, and one
or several of the functions in HOOKS; harness/training/hooks.py calls them. The fields are set as
plugin.FILE.FIELD; where all have their defaults, the plug-in is off and none of it is called. The
files are named by an experiment's `plugins:`; workers find them through the environment, and their
code is part of a run's identity.
"""

import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from harness.config.run import Values
from harness.errors import UserError

if TYPE_CHECKING:  # plans are made without torch
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor
    from torch.optim import Optimizer

    from harness.data.documents import Documents
    from harness.model.gpt import GPT


class PlugInFile(Protocol):
    """What a plug-in may define, each function as it stands here; docs/your-idea.md says when."""

    def build(self, model: "GPT", toggles: Any) -> None:
        """Change the new network, before its parameters are drawn."""

    def loss(self, logits: "Tensor", targets: "Tensor", toggles: Any) -> "Tensor":
        """What is trained on, a 0-d tensor, of logits (N, V) and targets (N,)."""

    def lr_factor(self, step: int, steps: int, factor: float, toggles: Any) -> float:
        """What multiplies every rate at update `step` of `steps`; the preset has `factor`."""

    def optimizers(
        self, groups: list[dict[str, Any]], toggles: Any
    ) -> "list[Optimizer | dict[str, Any]]":
        """What moves the parameters of groups, and groups that stay with the preset's rules."""

    def order(self, documents: "Documents", seed: int, toggles: Any) -> "NDArray[np.int64]":
        """The numbers of all documents, each once, as they are to be read."""


# function of a plug-in -> its arguments
HOOKS: Mapping[str, tuple[str, ...]] = {
    name: tuple(inspect.signature(function).parameters)[1:]
    for name, function in vars(PlugInFile).items()
    if inspect.isfunction(function) and not name.startswith("_")
}
ALONE = ("loss", "optimizers", "order")  # what two plug-ins cannot both decide
PAGE = "docs/your-idea.md"
VARIABLE = "ABLATE_PLUGINS"  # absolute paths, separated as in PATH; inherited by every worker
_loaded: dict[Path, ModuleType] = {}


def paths() -> list[Path]:
    """The plug-in files in force."""
    return [Path(p) for p in os.environ.get(VARIABLE, "").split(os.pathsep) if p]


def use(files: Iterable[Path]) -> None:
    """Put plug-in files in force, here and in every worker started from now on.

    Raises UserError for a file that is none.
    """
    os.environ[VARIABLE] = os.pathsep.join(str(f.resolve()) for f in files)
    modules()


def modules() -> list[ModuleType]:
    """The plug-ins in force, imported once."""
    by_name: dict[str, Path] = {}
    for path in paths():
        if by_name.setdefault(path.stem, path) != path:
            raise UserError(
                f"plug-ins {by_name[path.stem]} and {path}: two files of one name; rename one of "
                "them"
            )
        if path not in _loaded:
            _loaded[path] = _import(path)
    return [_loaded[p] for p in paths()]


def _import(path: Path) -> ModuleType:
    if not path.is_file():
        raise UserError(
            f"plug-in {path}: no such file; paths in `plugins:` are relative to the experiment's "
            "file"
        )
    if not path.stem.isidentifier() or path.suffix != ".py":
        raise UserError(
            f"plug-in {path}: its name is part of its toggles' names: call it NAME.py, of "
            "letters, digits and '_'"
        )
    spec = importlib.util.spec_from_file_location(f"ablate_plugin_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where the file's own annotations are looked up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"plug-in {path}: {type(error).__name__}: {error}") from error
    if not is_dataclass(getattr(module, "Toggles", None)):
        raise UserError(f"plug-in {path}: must define a dataclass Toggles; see {PAGE}")
    _check_hooks(module, path)
    for f in fields(module.Toggles):
        if f.default is MISSING:
            raise UserError(
                f"plug-in {path}: Toggles.{f.name} has no default: give it the value that leaves "
                "the baseline alone"
            )
    vars(module).update(NAME=path.stem)
    return module


def _check_hooks(module: ModuleType, path: Path) -> None:
    """Refuse a plug-in without a hook, and a hook that cannot be called as it will be."""
    found = [name for name in HOOKS if hasattr(module, name)]
    if not found:
        functions = inspect.getmembers(module, inspect.isfunction)
        own = [name for name, f in functions if f.__module__ == module.__name__]
        listed = ", ".join(f"{name}({', '.join(HOOKS[name])})" for name in HOOKS)
        raise UserError(
            f"plug-in {path}: changes nothing, its functions are {', '.join(own) or 'none'}: "
            f"define one or several of {listed}; see {PAGE}"
        )
    for name in found:
        wanted = HOOKS[name]
        try:
            inspect.signature(getattr(module, name)).bind(*wanted)
        except TypeError:
            raise UserError(
                f"plug-in {path}: {name} must be a function called as {name}({', '.join(wanted)}): "
                f"give it these arguments, in this order; see {PAGE}"
            ) from None


def declared() -> Mapping[str, Field]:
    """Dotted name plugin.FILE.FIELD -> dataclass field, for the plug-ins in force."""
    by_name = {}
    for module in modules():
        for f in fields(module.Toggles):
            by_name[f"plugin.{module.NAME}.{f.name}"] = f
    return by_name


def named(value: Any) -> str:
    """What a hook gave, for a message of one line."""
    return repr(value) if isinstance(value, int | float | None) else type(value).__name__


@dataclass(frozen=True, kw_only=True)
class PlugIn:
    """A plug-in that is on, with the values of its toggles."""

    module: ModuleType
    toggles: Any

    def hook(self, name: str) -> Callable[..., Any] | None:
        """Its function of that name in HOOKS, None where it has none."""
        function: Callable[..., Any] | None = getattr(self.module, name, None)
        return function

    def fail(self, hook: str, message: str) -> UserError:
        return UserError(f"plug-in {self.module.__file__}: {hook} {message}; see {PAGE}")


def switched_on(settings: Values) -> list[PlugIn]:
    """The plug-ins in force with a field that is not at its default.

    settings: FILE.FIELD -> value, of the fields that were set. Raises UserError where two of them
    decide the same.
    """
    found = []
    for module in modules() if settings else []:
        given = {}
        for name, value in settings.items():
            file, _, field = name.partition(".")
            if file == module.NAME:
                given[field] = value
        toggles = module.Toggles(**given)
        if toggles != module.Toggles():
            found.append(PlugIn(module=module, toggles=toggles))
    for hook in ALONE:
        files = [p.module.__file__ for p in found if p.hook(hook) is not None]
        if len(files) > 1:
            raise UserError(
                f"plug-ins {files[0]} and {files[1]} both define {hook}: switch on one of them in "
                "an arm"
            )
    return found
