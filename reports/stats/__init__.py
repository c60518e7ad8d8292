"""Statistics: arrays in, numbers out; numpy and scipy alone."""
