"""What may be doubtful about a number of the page, each with its cure."""

import enum


class Caution(enum.Enum):
    """What to doubt about a number; the text says what is the matter and the cure.

    Order is the order of printing."""

    DIVERGED = (
        "Some runs diverged: the loss effect is a worst-rank trimmed mean. Read the outcome table "
        "beside it."
    )
    NOT_A_NUMBER = "A finished run's loss is not a number: it counts as diverged. Read its log."
    FAILED_RUNS = (
        "Some planned runs failed and have no result: run the experiment again to complete them, "
        "or read why in the run table."
    )
    UNFINISHED = (
        "Planned runs are still missing: intervals are anytime-valid and wider. Finish the "
        "experiment for the planned ones."
    )
    EXTENDED = (
        "The number of seeds was raised after the first launch: intervals stay anytime-valid. "
        "Plan a new experiment to avoid it."
    )
    STALE = (
        "Runs made by an older source were left out: run the experiment again, or admit them with "
        "--accept-stale."
    )
    STALE_ACCEPTED = (
        "Runs made by an older source are counted, as asked by --accept-stale: the arms may "
        "differ by more than their changes."
    )
    DUPLICATE_RUN = (
        "The same run appears twice and is counted once: give every run its own seed or remove "
        "the copy."
    )
    NOT_BLOCKED = (
        "Arm and baseline share no blocks: compared as independent samples (Welch). Run both at "
        "the same seeds."
    )
    FEW_UNBLOCKED = (
        "Without common blocks so few runs give no interval worth printing, as either arm may be "
        "the noisier: add runs to the smaller arm, or run both at the same seeds."
    )
    MISSING_CELLS = (
        "Arm and baseline do not have the same blocks: only what they share is paired. Complete "
        "the missing runs."
    )
    ONE_NODE = (
        "All runs were made on one node: a time claim holds on this node. Repeat it on another."
    )
    NO_SHARED_NODE = (
        "Arm and baseline share no block on one node: their times also differ by node (up to 8 %), "
        "and the interval carries that. Run both on one node."
    )
    STICKY_NODE = (
        "An arm always ran on one node and the baseline elsewhere too, or the reverse: only times "
        "of one seed and node are compared. Run all arms on one node, or let chance place them."
    )
    SPLIT_BLOCK = (
        "The runs of some seeds were made on several nodes: times are compared within seed and "
        "node, so that runs without a partner there count less. Give all runs one node."
    )
    DISTURBED = (
        "The times of some runs were disturbed, as the run table says: where a machine stood "
        "still they are left out, where others used its devices they count. Losses count."
    )
    OTHER_ENVIRONMENT = (
        "Arm and baseline ran with another driver, CUDA or torch: the difference is an environment "
        "effect too. Run both in one environment."
    )
    NODE_UNKNOWN = (
        "The logs do not say on which node they were made: the interval carries what the same "
        "program's time differs by from node to node. Run both arms on one node."
    )
    MIXED_HARDWARE = (
        "Runs come from different hardware, or of one block from different drivers or from two "
        "makings of its trunk: their times are not compared. Run all arms on the same kind of "
        "machine."
    )
    NOT_JUDGED = (
        "Results that were seen are gone, replaced or left out, as a note says: the rest is chosen "
        "by them. Ask again on fresh seeds."
    )
    CHOSEN = (
        "The losses of these runs choose which points go on: they judge none of them. Confirm the "
        "selected point on fresh seeds."
    )
    ZERO_VARIANCE = (
        "The losses or times of several runs are equal to the last digit: they tell no error. Look "
        "for a copied run or fixed seed; a foreign script gets its seed by {seed} in its command."
    )
    BIT_EQUAL = (
        "Equal bit for bit at every seed: the change does not touch what is trained here, or is "
        "not switched on. More seeds tell no more; look at what differed."
    )
    OUTLIER = (
        "A run lies far from the others of its arm (more than 5 robust sd); it is counted. Look "
        "at its log."
    )
    UNEQUAL_NOISE = (
        "The arms' own sd differ by more than chance allows: the quieter arms' intervals hold, "
        "wider than they need be. More seeds narrow them; alters_noise is for what is known "
        "before any run."
    )
    PRIOR_TOO_SMALL = (
        "The runs are noisier than the declared prior_noise: intervals of losses may be too "
        "narrow. Plan a new experiment without it, or with one that fits."
    )
    PRIOR_DECLARED_LATE = (
        "prior_noise was declared or changed after the first launch: intervals are anytime-valid, "
        "without it. Plan a new experiment to use it."
    )
    SKEWED = (
        "The differences are skewed by more than 2: a sequence may err more often than it says. "
        "Look for two modes."
    )
    UNLIKE_NOISE = (
        "Arm and baseline are not noisy alike: where that noise is skewed, too, a sequence errs "
        "more often than it says. Look at the runs of the noisier one."
    )
    DRIFTS = (
        "The differences change with the order of the blocks: the sequence is that of their mean "
        "so far. Look for what changed."
    )
    FEW_BUDGETS = (
        "N* needs runs re-annealed at two or more budgets, or a slope given from outside: add "
        "budgets to the experiment."
    )
    NOT_BRACKETED = (
        "The budgets do not bracket the target, so N* is extrapolated and gets no verdict: for a "
        "time to target add the budgets that `plan` proposes."
    )
    SLOPE_GIVEN = (
        "The slope of loss over steps was given from outside, with its standard error: add "
        "budgets to measure it."
    )
    SLOPE_UNSURE = (
        "The slope of loss over steps is not resolved from zero, so N* is unbounded: add seeds or "
        "spread the budgets."
    )
    SLOPES_DIFFER = "The arms' slopes differ: each arm uses its own and N* is less certain."
    TWO_PHASE_UNVERIFIED = (
        "Losses come from packed runs, times from exclusive ones; that both train alike is "
        "unverified: add whole-node baselines."
    )
    EXPLORATORY = (
        "Exploratory: the same runs may have suggested the question. `ablate confirm` writes the "
        "confirmatory experiment."
    )
    ASKED_AGAIN = (
        "Exploratory: the same runs may have suggested the question. What asks it again on fresh "
        "seeds stands at the top."
    )

    @property
    def text(self) -> str:
        """The sentence that is printed."""
        return str(self.value)
