"""What the design of an experiment tells beside its verdicts, worked out once for a page."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.run.document import Document
from reports.analysis.attribution import Attribution, attributions
from reports.analysis.compare import compare_all
from reports.analysis.interactions import BesideOther, Interplay
from reports.analysis.optimum import Optimum, optima
from reports.analysis.samples import pending
from reports.analysis.sensitivity import Sensitivity, sensitivities
from reports.analysis.types import Comparisons
from reports.inputs.experiment import Experiment
from reports.page.interactions import interactions_of


@dataclass(frozen=True, kw_only=True)
class ByDesign:
    """Each is empty where the design has no such question."""

    contributions: Sequence[Attribution]  # of changes that ran in several sets, by metric
    interactions: Sequence[Interplay]
    beside: Sequence[BesideOther]  # what each change of a pair adds with the other and without
    lowest: Sequence[Optimum]  # along axes
    signs: Sequence[Sensitivity]  # of effects along axes
    confirmed: "Sequence[Confirmation]"  # on fresh seeds

    @classmethod
    def of(cls, experiment: Experiment, outcome: Comparisons) -> "ByDesign":
        interactions, beside = interactions_of(experiment, outcome)
        return cls(
            contributions=attributions(experiment),
            interactions=interactions,
            beside=beside,
            lowest=optima(experiment),
            signs=sensitivities(experiment),
            confirmed=[Confirmation.of(other) for other in experiment.confirmations],
        )


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """An experiment that asked another's question again on fresh seeds, and what came out."""

    experiment: Experiment
    outcome: Comparisons
    by_design: ByDesign

    @classmethod
    def of(cls, experiment: Experiment) -> "Confirmation":
        outcome = compare_all(experiment)
        return cls(
            experiment=experiment,
            outcome=outcome,
            by_design=ByDesign.of(experiment, outcome),
        )

    @property
    def n_to_come(self) -> int:
        """Runs without which it says nothing yet: it is no place to look beforehand."""
        return pending(self.experiment)


@dataclass(frozen=True, kw_only=True)
class PageSource:
    """What a page is drawn from: an experiment's data, the experiment, and all that it tells."""

    data: Document
    experiment: Experiment
    outcome: Comparisons
    by_design: ByDesign
