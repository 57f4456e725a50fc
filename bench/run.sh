#!/usr/bin/env bash
# Measures a local cluster and Apache Kafka 4.3.1 with the same foreign clients, one after the other in one run, and
# writes docs/benchmarks.md. Most loads are in the folder PEER (by default ../shared/peer beside the checkout), which
# needs a JDK 17 and Maven; those on group coordinators are in bench/coordinators.py, and what records cost the clients
# of Python programs, ours among them, is measured by bench/python_clients.py, streams groups by bench/streams.py, share
# groups by bench/shares.py, tiered topics by bench/tiers.py. Where Spark is installed (make spark-test does it), bench/pipeline.py moves records between
# it and our cluster, bench/lake.py writes tables; bench/trace.py reports what the decision trace costs, bench/secure.py measures TLS, SASL, the
# authorizer and fairness on two secure clusters side by side, bench/faults.py what simulations and the checks of
# histories cost.
# About an hour; less with
#   STEPS (ready idle bench failover clients coordinators streams shares tiers trace lake pipeline secure faults)
#   ONLY, CLIENTS_ONLY, COORDINATORS_ONLY, STREAMS_ONLY, SHARES_ONLY, TIERS_ONLY, PIPELINE_ONLY, SECURE_ONLY (regular expressions)
#   PIPELINE_ARGS (--ten: 10 M records, too; those of 1 KB take 40 GB of disk, and 20 with --replicas 1)
#   FAULTS_ARGS (--seeds 1-40 --operations 1000000)
#   REPEAT, DURATION, WARMUP (seconds)                       GROUPS_HELD, PRODUCER_IDS (how many, for their memory)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PEER=$(cd "${PEER:-../shared/peer}" 2>/dev/null && pwd) || { echo "bench: no load generators; set PEER to their folder" >&2; exit 2; }
OUT=$(pwd)/.cache/bench DATA=$(pwd)/.cache/bench/data PORT=${BASE_PORT:-30092}
.venv/bin/python -c 'import pyspark' 2> /dev/null && SPARK=pipeline || SPARK=
STEPS=${STEPS:-ready idle bench failover clients coordinators streams shares tiers trace lake $SPARK secure faults}
REPEAT=${REPEAT:-2} DURATION=${DURATION:-6} WARMUP=${WARMUP:-60}
# Everything but a few kinds of produce that tell nothing the others do not.
ONLY=${ONLY:-'^(?!produce.*(p1\.1.*lz4|p12\.100B|noidem))'}
COORDINATORS_ONLY=${COORDINATORS_ONLY:-.} GROUPS_HELD=${GROUPS_HELD:-1000} PRODUCER_IDS=${PRODUCER_IDS:-10000}
CLIENTS_ONLY=${CLIENTS_ONLY:-.}
# Beside Kafka's defaults, on both sides. Members of consumer groups are heard as often, and missed as soon, as those of
# classic groups in bench/coordinators.py; members of streams groups are heard as often.
SETTINGS="group.consumer.min.session.timeout.ms=6000 group.consumer.session.timeout.ms=6000
  group.consumer.min.heartbeat.interval.ms=500 group.consumer.heartbeat.interval.ms=500
  group.streams.min.heartbeat.interval.ms=500 group.streams.heartbeat.interval.ms=500"
mkdir -p "$OUT"; rm -f "$OUT"/*.jsonl; touch "$OUT/kafka.jsonl" "$OUT/barnabas.jsonl"
NODE="$(pwd)/bench/node.sh $DATA" PEER_NODE="$PEER/kafka_peer.sh"
CLUSTER="$(pwd)/.venv/bin/barnabas cluster"
OURS="127.0.0.1:$PORT,127.0.0.1:$((PORT + 1)),127.0.0.1:$((PORT + 2))"
# As the peer has it.
SET="--set group.initial.rebalance.delay.ms=0"; for pair in $SETTINGS; do SET+=" --set $pair"; done
UP="$CLUSTER up --no-restarts --data $DATA --base-port $PORT $SET" DOWN="$CLUSTER down --data $DATA"
KAFKA_PEER_BROKER_EXTRA=$(printf '%s\\n' $SETTINGS)
export REPEAT DURATION WARMUP QUIET_WAIT=${QUIET_WAIT:-5} KAFKA_PEER_BROKER_EXTRA
GENERAL=${STEPS//coordinators/} GENERAL=${GENERAL//clients/} GENERAL=${GENERAL//pipeline/} GENERAL=${GENERAL//trace/} GENERAL=${GENERAL//faults/}
GENERAL=${GENERAL//secure/} GENERAL=${GENERAL//shares/} GENERAL=${GENERAL//streams/} GENERAL=${GENERAL//tiers/} GENERAL=${GENERAL//lake/}

wanted() { [[ " $STEPS " == *" $1 "* ]]; }
# LABEL BOOTSTRAP FILE WARMUP PIDS KILL RESTART: what is measured by programs beside this one
ours() {
  if wanted clients; then
    .venv/bin/python bench/python_clients.py --label "$1" --bootstrap "$2" --out "$3" --warmup "$4" --pids "$5" \
      --only "$CLIENTS_ONLY" --repeat "$REPEAT" --seconds "$DURATION"
  fi
  if wanted coordinators; then
    .venv/bin/python bench/coordinators.py --label "$1" --bootstrap "$2" --out "$3" --warmup "$4" --pids "$5" \
      --kill "$6" --restart "$7" --only "$COORDINATORS_ONLY" --repeat "$REPEAT" --duration "$DURATION" \
      --groups "$GROUPS_HELD" --producer-ids "$PRODUCER_IDS"
  fi
  if wanted streams; then
    .venv/bin/python bench/streams.py --label "$1" --bootstrap "$2" --out "$3" --warmup "$4" --pids "$5" \
      --only "${STREAMS_ONLY:-.}" --repeat "$REPEAT"
  fi
  if wanted shares; then
    .venv/bin/python bench/shares.py --label "$1" --bootstrap "$2" --libs "$("$PEER_NODE" libs)" --out "$3" \
      --warmup "$4" --pids "$5" --only "${SHARES_ONLY:-.}" --repeat "$REPEAT" --seconds "$DURATION"
  fi
}

if [ -n "${GENERAL// /}" ]; then
  STEPS=$GENERAL BENCH_ARGS="--only $ONLY --warmup $WARMUP" "$PEER/run_all.sh" "$OUT/kafka.jsonl"
fi
if wanted clients || wanted coordinators || wanted streams || wanted shares; then
  trap '"$PEER_NODE" stop' EXIT
  "$PEER_NODE" stop; "$PEER_NODE" format > /dev/null; "$PEER_NODE" start
  "$PEER_NODE" wait > /dev/null
  ours kafka-4.3.1 "$("$PEER_NODE" bootstrap)" "$OUT/kafka.jsonl" "$WARMUP" "$PEER_NODE pids" \
    "$PEER_NODE kill-broker {id}" "$PEER_NODE start-broker {id}"
  "$PEER_NODE" stop
fi
if [ -n "${GENERAL// /}" ]; then
  STEPS=$GENERAL LABEL=barnabas BOOTSTRAP=$OURS FORMAT="rm -rf $DATA" START=$UP STOP=$DOWN \
    PIDS="$NODE pids" KILLB="$NODE kill broker-{id}" TERMB="$NODE term broker-{id}" STARTB="$NODE start broker-{id}" \
    KILLC="$NODE kill controller-{id}" STARTC="$NODE start controller-{id}" ACTIVE="$NODE active" \
    BENCH_ARGS="--only $ONLY --warmup 0" "$PEER/run_all.sh" "$OUT/barnabas.jsonl"
fi
if wanted clients || wanted coordinators || wanted streams || wanted shares || wanted trace || wanted lake || wanted pipeline; then
  trap '$DOWN' EXIT
  $DOWN || true; rm -rf "$DATA"; $UP > /dev/null
  ours barnabas "$OURS" "$OUT/barnabas.jsonl" 5 "$NODE pids" "$NODE kill broker-{id}" "$NODE start broker-{id}"
  if wanted trace; then
    .venv/bin/python bench/trace.py --bootstrap "$OURS" --data "$DATA" --pids "$NODE pids" --out "$OUT/barnabas.jsonl" \
      --repeat "$REPEAT" --seconds "$DURATION"
  fi
  if wanted lake; then
    .venv/bin/python bench/lake.py --label barnabas --bootstrap "$OURS" --pids "$NODE pids" --out "$OUT/barnabas.jsonl" \
      --repeat "$REPEAT"
  fi
  if wanted pipeline; then
    tests/pipeline/install.sh
    # shellcheck disable=SC2086
    .venv/bin/python bench/pipeline.py --bootstrap "$OURS" --data "$DATA" --pids "$NODE pids" \
      --out "$OUT/barnabas.jsonl" --only "${PIPELINE_ONLY:-.}" --repeat "$REPEAT" --scratch "$OUT/parquet" ${PIPELINE_ARGS:-}
  fi
  $DOWN
fi
if wanted tiers; then
  bench/tiers.sh "$PEER_NODE" "$DATA" "$PORT" "$OUT"
fi
if wanted secure; then
  trap - EXIT
  rm -rf "$DATA"
  .venv/bin/python bench/secure.py --data "$DATA" --peer "$PEER" --base-port "$PORT" --kafka-out "$OUT/kafka.jsonl" \
    --out "$OUT/barnabas.jsonl" --only "${SECURE_ONLY:-.}" --repeat "$REPEAT" --seconds "$DURATION" --warmup "$WARMUP"
fi
if wanted faults; then
  # shellcheck disable=SC2086
  .venv/bin/python bench/faults.py --out "$OUT/barnabas.jsonl" ${FAULTS_ARGS:-}
fi
.venv/bin/python bench/report.py "$PEER/report.py" "$OUT/kafka.jsonl" "$OUT/barnabas.jsonl" > docs/benchmarks.md
echo "docs/benchmarks.md"
