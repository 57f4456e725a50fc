#!/usr/bin/env bash
# What the load generators need to do to nodes of a local cluster: node.sh DATA pids | kill|term NAME | start NAME | active
set -euo pipefail
DATA=$1 VERB=$2 NAME=${3:-}
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
pid() { cut -d' ' -f1 "$DATA/run/$1.pid"; }
ended() { # Fields 3 and 20 of /proc/PID/stat: the state, and the number of threads.
  local stat; stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
  # shellcheck disable=SC2086
  set -- ${stat##*) }; [ "$1" = Z ] && [ "${18}" -le 1 ]
}
case $VERB in
  pids) for f in "$DATA"/run/*.pid; do
          name=$(basename "$f" .pid); p=$(pid "$name"); [ -d "/proc/$p" ] && echo "$name $p"; done; true;;
  kill) p=$(pid "$NAME"); kill -KILL "$p"
        # It counts as running until its last thread has ended.
        until ended "$p"; do :; done;;
  term) kill -TERM "$(pid "$NAME")";;
  start) exec "$HERE/.venv/bin/barnabas" cluster start --no-restarts "$NAME" --data "$DATA";;
  active) "$HERE/.venv/bin/barnabas" cluster status --json --data "$DATA" |
            "$HERE/.venv/bin/python" -c 'import json, sys; print(json.load(sys.stdin)["quorum"]["leader"])';;
  *) sed -n 2p "$0" >&2; exit 2;;
esac
