"""Toggles of your own, outside the tree: Python files that declare fields and change the network.

A plug-in file holds a frozen dataclass `Toggles`, its fields made by `model.config.toggle`, and
`build(model, toggles)`, which is called on the new network before its parameters are drawn. The
fields are set as plugin.FILE.FIELD. The files are named by an experiment's `plugins:`; workers find
them through the environment, and their code is part of a run's identity.
"""

import importlib.util
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.config.run import Values
from harness.errors import UserError

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
    if not is_dataclass(getattr(module, "Toggles", None)) or not callable(
        getattr(module, "build", None)
    ):
        raise UserError(
            f"plug-in {path}: must define a dataclass Toggles and build(model, toggles); see "
            "docs/add-a-toggle.md"
        )
    for f in fields(module.Toggles):
        if f.default is MISSING:
            raise UserError(
                f"plug-in {path}: Toggles.{f.name} has no default: give it the value that leaves "
                "the baseline alone"
            )
    module.NAME = path.stem  # type: ignore[attr-defined]
    return module


def declared() -> Mapping[str, Field]:
    """Dotted name plugin.FILE.FIELD -> dataclass field, for the plug-ins in force."""
    by_name = {}
    for module in modules():
        for f in fields(module.Toggles):
            by_name[f"plugin.{module.NAME}.{f.name}"] = f
    return by_name


def build(model: Any, settings: Values) -> None:
    """Let every plug-in in force change the network.

    settings: FILE.FIELD -> value, of the fields that were set.
    """
    for module in modules():
        given = {}
        for name, value in settings.items():
            file, _, field = name.partition(".")
            if file == module.NAME:
                given[field] = value
        module.build(model, module.Toggles(**given))
