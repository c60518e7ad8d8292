"""Every unit that is known here, by the name of its file."""

import re
from collections.abc import Mapping

from harness.bench.unit import Unit
from harness.bench.units_bigram import BIGRAM_UNITS, OTHER_BIGRAMS
from harness.bench.units_cadence import CADENCE_UNITS
from harness.bench.units_data import DATA_UNITS
from harness.bench.units_loss import LOSS_UNITS
from harness.bench.units_matrices import MATRIX_UNITS
from harness.bench.units_model import MODEL_UNITS, OTHER_ATTENTION
from harness.bench.units_mudd import MUDD_UNITS
from harness.bench.units_networks import NETWORK_UNITS, network_unit
from harness.bench.units_optim import OPTIM_UNITS
from harness.bench.units_rotary import ROTARY_UNITS
from harness.bench.units_schedule import OTHER_SCHEDULES, SCHEDULE_UNITS

UNITS: Mapping[str, Unit] = {
    **OPTIM_UNITS,
    **CADENCE_UNITS,
    **MODEL_UNITS,
    **MATRIX_UNITS,
    **NETWORK_UNITS,
    **BIGRAM_UNITS,
    **MUDD_UNITS,
    **LOSS_UNITS,
    **DATA_UNITS,
    **ROTARY_UNITS,
    **SCHEDULE_UNITS,
}
# units whose numbers are not among ours, by the rule of their record
OTHERS: Mapping[str, Unit] = {**OTHER_BIGRAMS, **OTHER_ATTENTION, **OTHER_SCHEDULES}
RULES = {**UNITS, **OTHERS}
RECORD = re.compile(r"_r(\d+)(?:_|$)")


def _rule_and_record(name: str) -> tuple[str, int]:
    match = RECORD.search(name)
    return (name[: match.start()], int(match[1])) if match else (name, 0)


def unit_of(name: str) -> Unit | None:
    """How the unit of this name is checked; None for one of which nothing is known here.

    A record that has none of its own goes by the rule of the one before it: normuon_r45 by that of
    normuon_r43; other endings tell other inputs: adam_records_wide. A network goes by its preset.
    """
    if name in RULES:
        return RULES[name]
    if network := network_unit(name):
        return network
    rule, record = _rule_and_record(name)
    before = {_rule_and_record(key)[1]: key for key in RULES if _rule_and_record(key)[0] == rule}
    if earlier := [number for number in before if number <= record]:
        return RULES[before[max(earlier)]]
    starts = [key for key in RULES if name.startswith(f"{key}_")]
    return RULES[max(starts, key=len)] if starts else None
