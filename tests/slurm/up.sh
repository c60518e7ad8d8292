#!/usr/bin/env bash
# A Slurm cluster of two nodes with four pretended GPUs each, all on this machine: up.sh FOLDER. Jobs of the partition `urgent`
# preempt those of `main`. Needs Debian's slurm-wlm and munge, and root. `export SLURM_CONF=FOLDER/slurm.conf` to use it;
# down.sh FOLDER ends it.
set -euo pipefail
PATH="$PATH:/usr/sbin:/sbin"  # the daemons' place, which not every caller's PATH has
folder=$(realpath -m "$1")
host=$(hostname -s)
mkdir -p "$folder"/{spool,state,log}

configure() {  # the ports PORT and the next two: not any that the system gives by itself, which begin above
  local port=$1
  cat > "$folder/slurm.conf" <<END
ClusterName=lab
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
MinJobAge=3600
KillWait=5
MessageTimeout=60
BatchStartTimeout=60
MaxArraySize=2000
GresTypes=gpu
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
StateSaveLocation=$folder/state
SlurmctldPidFile=$folder/slurmctld.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdPidFile=$folder/slurmd-%n.pid
SlurmdLogFile=$folder/log/%n.log
SlurmdSpoolDir=$folder/spool/%n
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=4 RealMemory=2000 Gres=gpu:fake:4
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=4 RealMemory=2000 Gres=gpu:fake:4
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=main Nodes=n[1-2] Default=YES State=UP PriorityTier=1
PartitionName=urgent Nodes=n[1-2] State=UP PriorityTier=10
END
}
: > "$folder/gres.conf"
for node in n1 n2; do
  for gpu in 0 1 2 3; do
    [ -e "$folder/gpu.$node.$gpu" ] || mknod "$folder/gpu.$node.$gpu" c 1 3  # slurmd wants a device file
  done
  echo "NodeName=$node Name=gpu Type=fake File=$folder/gpu.$node.[0-3]" >> "$folder/gres.conf"
done

export SLURM_CONF="$folder/slurm.conf"
mkdir -p /run/munge
chown munge:munge /run/munge
exec 9> /run/lock/slurm-for-tests  # munged is for all clusters: none starts or ends it while another looks
flock 9
if ! munge -n > /dev/null 2>&1; then
  runuser -u munge -- /usr/sbin/munged --force 9>&-  # a killed one leaves its socket
  touch /run/munge/started_for_tests  # the last down.sh ends it
fi

ours() {  # whether it is our controller that answers, and not that of a cluster which has its port
  [ "$(timeout 20 scontrol show config 2>/dev/null | grep -c "^StateSaveLocation *= $folder/state\$")" = 1 ]
}

come() {  # the three daemons, each with its port; a daemon that finds it taken ends at once and says so in its log
  slurmctld -c 9>&-
  slurmd -N n1 9>&-
  slurmd -N n2 9>&-
  for _ in $(seq 900); do
    sleep 0.2
    grep -qs "Address already in use" "$folder"/log/*.log && return 1
    [ "$(timeout 20 sinfo -h -N -p main -o %T 2>/dev/null | grep -c idle)" = 2 ] && ours && return 0
  done
  echo "the nodes did not come up in time: see $folder/log" >&2
  exit 1
}

leave() {  # daemons of a cluster whose ports were not all free
  for file in "$folder"/slurmd-n1.pid "$folder"/slurmd-n2.pid "$folder"/slurmctld.pid; do
    [ -f "$file" ] && pid=$(cat "$file") && kill "$pid" 2>/dev/null || continue
    for _ in $(seq 600); do kill -0 "$pid" 2>/dev/null && sleep 0.2 || break; done
  done
  rm -rf "$folder"/slurmd-n?.pid "$folder"/slurmctld.pid "$folder"/log/* "$folder"/state/* "$folder"/spool/*
}

# no daemon can be given port 0: the ports are known to be free when all three listen, no sooner, and then others are tried
for attempt in $(seq 50); do
  configure $((20000 + ($$ * 3 + attempt * 501) % 9000))
  come && exit 0
  leave
done
echo "no three free ports were found: see $folder/log" >&2
exit 1
