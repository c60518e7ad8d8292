#!/usr/bin/env bash
# Ends the cluster that up.sh FOLDER started: its own processes, by their pid files; munged too, if it was started for clusters like this
# one and no other of them runs.
folder=$(realpath -m "$1")
export SLURM_CONF="$folder/slurm.conf"
timeout 60 scancel --me 2>/dev/null
for _ in $(seq 300); do  # until the jobs are gone, or the controller does not answer
  [ -n "$(timeout 60 squeue -h 2>/dev/null)" ] && sleep 0.2 || break
done
for file in "$folder"/slurmd-n1.pid "$folder"/slurmd-n2.pid "$folder"/slurmctld.pid; do
  [ -f "$file" ] || continue
  pid=$(cat "$file")
  kill "$pid" 2>/dev/null
  for _ in $(seq 600); do kill -0 "$pid" 2>/dev/null && sleep 0.2 || break; done
done
exec 9> /run/lock/slurm-for-tests
flock 9
if [ -f /run/munge/started_for_tests ] && ! pgrep -x -r R,S,D slurmctld >/dev/null; then  # no other cluster needs it
  runuser -u munge -- /usr/sbin/munged --stop  # waits for its end
  rm /run/munge/started_for_tests
fi
exit 0
