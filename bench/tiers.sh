#!/usr/bin/env bash
# Tiered topics on Apache Kafka, with the store of its own tests (LocalTieredStorage), and then on a cluster of ours with
# the same directory layout. Both look for work each 500 ms.
#   tiers.sh PEER_NODE DATA PORT OUT       TIERS_ONLY, REPEAT, DURATION, TIERS_MIB
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
NODE=$1 DATA=$2 PORT=$3 OUT=$4
KAFKA=$OUT/tiers-kafka STORE=$OUT/tiers-store
SETTINGS="remote.log.storage.system.enable=true
  remote.log.storage.manager.class.name=org.apache.kafka.server.log.remote.storage.LocalTieredStorage
  remote.log.manager.task.interval.ms=500 log.retention.check.interval.ms=500"
LOADS=(.venv/bin/python bench/tiers.py --only "${TIERS_ONLY:-.}" --repeat "${REPEAT:-2}" --seconds "${DURATION:-10}" --mib "${TIERS_MIB:-500}")

libs=$("$NODE" libs)
rm -rf "$KAFKA" "$STORE"; mkdir -p "$KAFKA/libs" "$STORE/kafka" "$STORE/barnabas"
cp "$libs"/*.jar "$KAFKA/libs"
mvn -q -B -f tests/compat/tiered-storage/pom.xml dependency:copy-dependencies -DexcludeTransitive=true -DoutputDirectory="$KAFKA/libs"
export KAFKA_PEER_LIBS=$KAFKA/libs KAFKA_PEER_RUN=$KAFKA/run
trap '"$NODE" stop; .venv/bin/barnabas cluster down --data "$DATA"; rm -rf "$KAFKA" "$STORE"' EXIT

"$NODE" stop; "$NODE" format > /dev/null
for file in "$KAFKA_PEER_RUN"/conf/*.properties; do # controllers, too: they check the configs of topics
  printf '%s\n' $SETTINGS remote.log.storage.manager.class.path= remote.log.metadata.manager.listener.name=PLAINTEXT \
    "rsm.config.dir=$STORE/kafka" rlmm.config.remote.log.metadata.topic.replication.factor=3 >> "$file"
done
"$NODE" start; "$NODE" wait > /dev/null
# Once for nothing: the second time a JVM is fast.
"${LOADS[@]}" --repeat 1 --bootstrap "$("$NODE" bootstrap)" > /dev/null
"${LOADS[@]}" --label kafka-4.3.1 --bootstrap "$("$NODE" bootstrap)" --pids "$NODE pids" --out "$OUT/kafka.jsonl"
"$NODE" stop

SET=; for pair in $SETTINGS "rsm.config.dir=$STORE/barnabas"; do SET+=" --set $pair"; done
.venv/bin/barnabas cluster down --data "$DATA" || true; rm -rf "$DATA"
# shellcheck disable=SC2086
.venv/bin/barnabas cluster up --no-restarts --data "$DATA" --base-port "$PORT" $SET > /dev/null
"${LOADS[@]}" --label barnabas --bootstrap "127.0.0.1:$PORT,127.0.0.1:$((PORT + 1))" --pids "bench/node.sh $DATA pids" \
  --out "$OUT/barnabas.jsonl"
