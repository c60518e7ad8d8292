"""Statistics, comparisons and pages from recorded runs: `from reports import load`."""

from reports.analysis.compare import compare_all
from reports.analysis.tables import comparison_frame
from reports.inputs.load import load

__all__ = ["compare_all", "comparison_frame", "load"]
