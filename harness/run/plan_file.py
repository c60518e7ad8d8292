"""experiment.json and plan.lock as they lie in a results folder, each under its seal.

The seal is the last entry of the file, a digest of all the text before it: a reader notices that
anything in it was changed, arms in another order included. The first format had none.
"""

import re
from pathlib import Path
from typing import Any

from harness.run.digests import text_digest
from harness.run.document import Document
from harness.run.files import json_text
from harness.run.guarded import read_bytes
from harness.run.parse import parse_json
from harness.run.plan import Plan, plan_of
from harness.run.versions import FIRST, LOCK, PLAN, check_version

_SEAL = re.compile(r',\n "digest": "([0-9a-f]{16})"\n}\n\Z')
NOT_WRITTEN = "is not the file that was written"


def sealed_text(content: Document) -> str:
    """A mapping as such a file holds it, an entry a line, the seal last."""
    text = json_text(content)
    return f'{text[:-3]},\n "digest": "{text_digest(text)}"\n}}\n'


def _unsealed(raw: bytes, newest: int, path: Path) -> Any:
    """The content of such a file; raises ValueError where its seal does not hold, or NewerError."""
    content, text = parse_json(raw), raw.decode()
    if check_version(content, newest, path) > FIRST:
        seal = _SEAL.search(text[-40:])
        if seal is None or text_digest(f"{text[: -len(seal[0])]}\n}}\n") != seal[1]:
            raise ValueError(NOT_WRITTEN)
    return content


def read_plan_file(path: Path) -> Plan:
    """The plan of an experiment's folder; raises OSError, ValueError or NewerError."""
    return plan_of(_unsealed(read_bytes(path), PLAN, path), path.parent.name)


def plan_text(plan: Plan) -> str:
    """What experiment.json holds."""
    return sealed_text(plan.to_mapping())


def lock_text(plan: Plan) -> str:
    """What plan.lock holds: every plan that was locked, in order."""
    return sealed_text({"schema": LOCK, "locks": plan.to_mapping()["locks"]})


def wrong_lock(path: Path, plan: Plan) -> str | None:
    """Why plan.lock of a folder does not say what its plan says was locked; None where it does.

    Raises NewerError.
    """
    try:
        content = _unsealed(read_bytes(path), LOCK, path)
    except FileNotFoundError:
        return f"{path} is missing"
    except (OSError, ValueError) as error:
        return f"{path} {error if str(error) == NOT_WRITTEN else 'is damaged'}"
    locks = content.get("locks") if isinstance(content, dict) else content
    if locks != plan.to_mapping()["locks"]:
        return f"{path} does not say what {path.parent / 'experiment.json'} says was locked"
    return None
