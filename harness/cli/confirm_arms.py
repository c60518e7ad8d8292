"""The arms that `confirm --arm` names, as the keys of the file that confirms them."""

import math
from typing import TYPE_CHECKING, Any

from harness.errors import UserError, near
from harness.run.document import Content, Fields

if TYPE_CHECKING:
    from harness.run.plan import Plan


def points_named(plan: "Plan", arms: list[str], fixed: Fields) -> Content:
    """`changes` with the values of arms at points of axes, one each; empty where none is at one.

    fixed: the fields of `set`, which a change moves by a factor alone.
    """
    chosen = [plan.by_arm[name] for name in arms if name in plan.by_arm]
    if len(chosen) < len(arms) or not any(arm.name != arm.of for arm in chosen):
        return {}
    changes, noisy = {}, []
    for arm in chosen:
        if arm.environment_effect or not arm.fields:
            raise UserError(
                f"--arm {arm.name}: no values alone make it: confirm the whole experiment, "
                "without --arm"
            )
        places = ", ".join(f"{axis.partition('.')[2]} {at}" for axis, at in arm.point.items())
        name = places if arm.of == plan.baseline else f"{arm.of}, {places}"
        changes[name] = dict(arm.fields)
        for field in fixed.keys() & arm.fields.keys():
            section, _, key = field.partition(".")
            factor = factor_between(plan.baseline_config[section].get(key), arm.fields[field])
            if factor is None:
                raise UserError(
                    f"--arm {arm.name}: no factor makes {field} of what `set` gives, so that no "
                    "change can: confirm the whole experiment, without --arm"
                )
            changes[name][field] = f"x{factor!r}"
        noisy += [name] * arm.alters_noise
    return {"changes": changes, **({"alters_noise": noisy} if noisy else {})}


def factor_between(before: Any, value: Any) -> float | None:
    """What an experiment's factor must be to make `value` of `before` to the last bit."""
    from harness.experiment.values import multiplied

    if not before or not value:
        return None
    near_it = [value / before]
    near_it += [math.nextafter(near_it[0], end) for end in (0, math.inf)]
    return next((f for f in near_it if f > 0 and multiplied(before, f) == value), None)


def chosen_arms(plan: "Plan", arms: list[str]) -> dict[str, list[str]]:
    """Arm -> its changes, of the arms that --arm names."""
    changes = {}
    for arm in plan.arms:
        if arm.name == arm.of and arm.of != plan.baseline:
            changes[arm.name] = list(arm.changes)
    for name in arms:
        if name not in changes:
            raise UserError(
                f"--arm {name}: no arm of '{plan.name}'"
                f"{near(name, [arm for arm in plan.by_arm if arm != plan.baseline])}"
            )
    return {name: changes[name] for name in arms}
