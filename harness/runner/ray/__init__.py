"""Runs on a Ray cluster: tasks of Ray's, which finds them nodes and starts them again."""
