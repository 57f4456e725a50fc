#!/usr/bin/env bash
# The Java client of an earlier release, through Maven: old_clients.sh VERSION puts its jar into .cache/kafka-clients.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec mvn -q -B dependency:copy "-Dartifact=org.apache.kafka:kafka-clients:$1" -DoutputDirectory="$PWD/.cache/kafka-clients"
