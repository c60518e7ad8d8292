"""Toggles of your own, outside the tree: Python files that declare fields and change the network where it is built.

A plug-in file holds a frozen dataclass `Toggles`, its fields made by `model.config.toggle`, and `build(model, toggles)`,
which is called on the new network before its parameters are drawn. The fields are set as plugin.FILE.FIELD. The files are
named by an experiment's `plugins:`; workers find them through the environment, and their code is part of a run's identity.
"""

import importlib.util
import os
from collections.abc import Iterable, Mapping
from dataclasses import Field, fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.errors import UserError

VARIABLE = "ABLATE_PLUGINS"  # absolute paths, separated as in PATH; inherited by every worker
_loaded: dict[Path, ModuleType] = {}


def paths() -> list[Path]:
    """The plug-in files in force."""
    return [Path(p) for p in os.environ.get(VARIABLE, "").split(os.pathsep) if p]


def use(files: Iterable[Path]) -> None:
    """Put plug-in files in force, here and in every worker started from now on; raises UserError for a file that is none."""
    os.environ[VARIABLE] = os.pathsep.join(str(f.resolve()) for f in files)
    modules()


def modules() -> list[ModuleType]:
    """The plug-ins in force, imported once."""
    for path in paths():
        if path not in _loaded:
            _loaded[path] = _import(path)
    return [_loaded[p] for p in paths()]


def _import(path: Path) -> ModuleType:
    if not path.is_file():
        raise UserError(f"plug-in {path}: no such file; paths in `plugins:` are relative to the experiment's file")
    spec = importlib.util.spec_from_file_location(f"ablate_plugin_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"plug-in {path}: {type(error).__name__}: {error}") from error
    if not is_dataclass(getattr(module, "Toggles", None)) or not callable(getattr(module, "build", None)):
        raise UserError(f"plug-in {path}: must define a dataclass Toggles and build(model, toggles); see docs/add-a-toggle.md")
    module.NAME = path.stem  # type: ignore[attr-defined]
    return module


def declared() -> Mapping[str, Field]:
    """Dotted name plugin.FILE.FIELD -> dataclass field, for the plug-ins in force."""
    return {f"plugin.{m.NAME}.{f.name}": f for m in modules() for f in fields(m.Toggles)}


def build(model: Any, settings: Mapping[str, Any]) -> None:
    """Let every plug-in in force change the network. settings: FILE.FIELD -> value, of those that were set."""
    for m in modules():
        own = {k.partition(".")[2]: v for k, v in settings.items() if k.partition(".")[0] == m.NAME}
        m.build(model, m.Toggles(**own))
