#!/usr/bin/env bash
# Measures a local cluster and Apache Kafka 4.3.1 with the same foreign clients, one after the other in one run, and
# writes docs/benchmarks.md. The generators are in the folder PEER (by default ../shared/peer beside the checkout);
# they need a JDK 17 and Maven. About 40 minutes; less with STEPS, ONLY, REPEAT and DURATION (seconds).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PEER=$(cd "${PEER:-../shared/peer}" 2>/dev/null && pwd) || { echo "bench: no load generators; set PEER to their folder" >&2; exit 2; }
OUT=$(pwd)/.cache/bench DATA=$(pwd)/.cache/bench/data PORT=${BASE_PORT:-30092}
STEPS=${STEPS:-ready idle bench failover} REPEAT=${REPEAT:-2} DURATION=${DURATION:-6} WARMUP=${WARMUP:-60}
# Groups and transactions are not served yet: their loads are left out on both sides.
ONLY=${ONLY:-'^(produce\.|consume\.librdkafka|e2e\.librdkafka|smallreq\.|metadata\.)'}
mkdir -p "$OUT"; rm -f "$OUT"/*.jsonl
NODE="$(pwd)/bench/node.sh $DATA"
CLUSTER="$(pwd)/.venv/bin/barnabas cluster"
export STEPS REPEAT DURATION WARMUP QUIET_WAIT=${QUIET_WAIT:-5}
BENCH_ARGS="--only $ONLY --warmup $WARMUP" "$PEER/run_all.sh" "$OUT/kafka.jsonl"
LABEL=barnabas BOOTSTRAP="127.0.0.1:$PORT,127.0.0.1:$((PORT + 1)),127.0.0.1:$((PORT + 2))" \
  FORMAT="rm -rf $DATA" START="$CLUSTER up --data $DATA --base-port $PORT" STOP="$CLUSTER down --data $DATA" \
  PIDS="$NODE pids" KILLB="$NODE kill broker-{id}" TERMB="$NODE term broker-{id}" STARTB="$NODE start broker-{id}" \
  KILLC="$NODE kill controller-{id}" STARTC="$NODE start controller-{id}" ACTIVE="$NODE active" \
  BENCH_ARGS="--only $ONLY --warmup 0" "$PEER/run_all.sh" "$OUT/barnabas.jsonl"
.venv/bin/python bench/report.py "$PEER/report.py" "$OUT/kafka.jsonl" "$OUT/barnabas.jsonl" > docs/benchmarks.md
echo "docs/benchmarks.md"
