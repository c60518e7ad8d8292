"""Running what is missing: executors, workers, processes."""
