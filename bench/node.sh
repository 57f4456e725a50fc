#!/usr/bin/env bash
# What the load generators need to do to nodes of a local cluster: node.sh DATA pids | kill|term NAME | start NAME | active
set -euo pipefail
DATA=$1 VERB=$2 NAME=${3:-}
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
pid() { cut -d' ' -f1 "$DATA/run/$1.pid"; }
case $VERB in
  pids) for f in "$DATA"/run/*.pid; do
          name=$(basename "$f" .pid); p=$(pid "$name"); [ -d "/proc/$p" ] && echo "$name $p"; done; true;;
  kill) kill -KILL "$(pid "$NAME")";;
  term) kill -TERM "$(pid "$NAME")";;
  start) exec "$HERE/.venv/bin/barnabas" cluster start "$NAME" --data "$DATA";;
  active) "$HERE/.venv/bin/barnabas" cluster status --json --data "$DATA" |
            "$HERE/.venv/bin/python" -c 'import json, sys; print(json.load(sys.stdin)["quorum"]["leader"])';;
  *) sed -n 2p "$0" >&2; exit 2;;
esac
