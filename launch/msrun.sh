#!/bin/sh
# Train a planned network on the NPUs of this machine, or of several:
#
#   launch/msrun.sh PLAN_DIR [options of launch/train.py]
#
# One node needs nothing else. For several, start it on every node with the same MASTER_ADDR and MASTER_PORT, and WORKERS (all
# devices), LOCAL_WORKERS (devices of this node) and NODE_RANK (0, 1, …) set.
set -eu
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { echo "usage: launch/msrun.sh PLAN_DIR [options of launch/train.py]" >&2; exit 2; }
LOCAL_WORKERS=${LOCAL_WORKERS:-8}
exec msrun \
    --worker_num "${WORKERS:-$LOCAL_WORKERS}" \
    --local_worker_num "$LOCAL_WORKERS" \
    --master_addr "${MASTER_ADDR:-127.0.0.1}" \
    --master_port "${MASTER_PORT:-8118}" \
    --node_rank "${NODE_RANK:-0}" \
    --join True \
    --log_dir "${LOG_DIR:-msrun_log}" \
    launch/train.py "$@"
