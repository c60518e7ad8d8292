#!/usr/bin/env bash
# Ends the cluster that up.sh FOLDER started: its own processes, by their pid files.
folder=$(realpath -m "$1")
export SLURM_CONF="$folder/slurm.conf"
scancel --me 2>/dev/null
sleep 1
for file in "$folder"/slurmd-n1.pid "$folder"/slurmd-n2.pid "$folder"/slurmctld.pid; do
  [ -f "$file" ] && kill "$(cat "$file")" 2>/dev/null
done
exit 0
