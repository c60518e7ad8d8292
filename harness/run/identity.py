"""Whether a folder holds the run that it is named after: its name is a digest of config.yaml."""

from functools import lru_cache
from pathlib import Path

from harness.run.digests import run_id_of, short_digest
from harness.run.guarded import read_text
from harness.run.read import OWN_LINES, parse_config, parse_shared
from harness.run.results import UNSEALED, Result
from harness.run.spec import RunSpec

ASKED_AT_FIRST = (  # what the first releases digested, as it stood in config.yaml
    *("config", "seed", "replicate", "budget", "role", "data", "world_size", "device"),
)
DAMAGED = (KeyError, TypeError, ValueError, AttributeError)


def wrong_identity(folder: Path | str, result: Result) -> str | None:
    """Why config.yaml of a run's folder is not that of the run of this result; None where it is.

    Raises NewerError.
    """
    path = f"{folder}/config.yaml"
    try:
        text = read_text(path)
        run_id = _run_id(text)
        if run_id != result.run_id and result.schema <= UNSEALED:
            run_id = _first_run_id(text)
    except (OSError, *DAMAGED) as error:
        return f"{path} is not the configuration of a run ({error})"
    if run_id != result.run_id:
        return f"{path} is the configuration of run {run_id}"
    return None


def _run_id(text: str) -> str:
    """The name of the run that a config.yaml describes; what its siblings share is parsed once."""
    numbers = {key: int(value) for key, value in OWN_LINES.findall(text)}
    if numbers.keys() != {"seed", "replicate"}:
        return RunSpec.from_mapping(parse_config(text)).run_id
    spec = _sibling(OWN_LINES.sub("", text), numbers["replicate"])
    return run_id_of(
        spec.seedless.intent_at(numbers["seed"]),
        source_digest=spec.source_digest,
        environment_digest=spec.environment_digest,
    )


@lru_cache(maxsize=256)
def _sibling(shared: str, replicate: int) -> RunSpec:
    """The run of seed 0 with this configuration."""
    return RunSpec.from_mapping({**parse_shared(shared), "seed": 0, "replicate": replicate})


def _first_run_id(text: str) -> str:
    """The name as the first releases made it."""
    content = parse_config(text)
    made_by = {key: {"digest": content[key]["digest"]} for key in ("source", "environment")}
    return short_digest({**{key: content[key] for key in ASKED_AT_FIRST}, **made_by})
