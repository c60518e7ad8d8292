"""The executor for Slurm: cluster.yaml, the queue, a job on its nodes, the runner that follows."""
