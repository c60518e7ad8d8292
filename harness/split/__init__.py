"""Two scripts taken apart: the atoms of their difference, what needs what, groups, arms."""
