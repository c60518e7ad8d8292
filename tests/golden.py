"""Golden dumps of all resolved presets: `python -m tests.golden` rewrites tests/data/presets, to be reviewed as a diff.

One line for every field. A value stands alone where the scales agree, else by scale: `{gpt2: 768, small: 256, tiny: 64}`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from harness.config.presets import load_scale, names, preset_values

FOLDER = Path(__file__).parent / "data" / "presets"
SCALES = ("gpt2", "small", "tiny")


def plain(value: Any) -> Any:
    return [plain(v) for v in value] if isinstance(value, tuple) else value


def dump(record: str) -> str:
    """The resolved preset of a record at all scales, as compact YAML."""
    values, _ = preset_values(record)
    by_scale: Mapping[str, Mapping[str, Any]] = {
        scale: load_scale(scale, record).apply(values) for scale in SCALES
    }
    lines = []
    for name in values:
        at = {scale: plain(v[name]) for scale, v in by_scale.items()}
        value = at["gpt2"] if len({repr(v) for v in at.values()}) == 1 else at
        text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1000)
        lines.append(
            f"{name}: {text.splitlines()[0]}\n"
        )  # behind a lone scalar comes an end of document
    return "".join(lines)


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path in FOLDER.glob("*.yaml"):
        path.unlink()
    for record in names("records"):
        (FOLDER / f"{record}.yaml").write_text(dump(record))


if __name__ == "__main__":
    main()
