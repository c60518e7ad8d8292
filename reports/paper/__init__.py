"""What a paper takes from an experiment: its table of comparisons, and its figures as files."""
