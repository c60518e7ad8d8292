"""The executor for Slurm clusters: cluster.yaml, the queue, the job on its nodes, the runner on the login node."""
