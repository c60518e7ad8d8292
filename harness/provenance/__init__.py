"""Where a run was made: machine, source, environment; and what is left out as secret."""
