"""From an experiment to its comparisons."""
