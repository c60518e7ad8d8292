"""Statistics, comparisons and pages from recorded runs: `from reports import compare_all, load`."""

from reports.analysis.compare import compare_all
from reports.inputs.load import load

__all__ = ["compare_all", "load"]
