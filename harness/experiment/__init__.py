"""Experiments: the file, its arms and designs, the plan of its runs and their cost."""
