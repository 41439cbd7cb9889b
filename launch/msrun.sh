#!/bin/sh
# Train a planned network on the NPUs of this machine, or of several:
#
#   launch/msrun.sh PLAN_DIR [options of launch/train.py]
#
# LOCAL_WORKERS (8) are the devices of this machine. For several machines, start it on every one of them, where the plan is too, with
# WORKERS (all devices), NODE_RANK (0, 1, …) and MASTER_ADDR (the IP address of node 0); MASTER_PORT (8118) is free there.
# Logs go to LOG_DIR (msrun_log).
set -eu
[ $# -ge 1 ] || { echo "usage: launch/msrun.sh PLAN_DIR [options of launch/train.py]" >&2; exit 2; }
root=$(cd "$(dirname "$0")/.." && pwd)
LOCAL_WORKERS=${LOCAL_WORKERS:-8}
WORKERS=${WORKERS:-$LOCAL_WORKERS}
if [ "$WORKERS" -ne "$LOCAL_WORKERS" ]; then
    : "${NODE_RANK:?is the number of this machine, 0 to $((WORKERS / LOCAL_WORKERS - 1)): set it on every one}"
    : "${MASTER_ADDR:?is the IP address of node 0: set it, the same on every machine}"
fi
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec msrun \
    --worker_num "$WORKERS" \
    --local_worker_num "$LOCAL_WORKERS" \
    --master_addr "${MASTER_ADDR:-127.0.0.1}" \
    --master_port "${MASTER_PORT:-8118}" \
    --node_rank "${NODE_RANK:-0}" \
    --join True \
    --log_dir "${LOG_DIR:-msrun_log}" \
    "$root/launch/train.py" "$@"
