#!/usr/bin/env bash
# The jars of another release of Apache Kafka, through Maven: older_kafka.sh VERSION puts them into .cache/kafka-VERSION.
set -uo pipefail
cd "$(dirname "$0")/../.."
room=compat-$1
. tests/needs.sh

maven_jars tests/compat/java-tools/pom.xml ".cache/kafka-$1" -DincludeScope=runtime "-Dkafka.version=$1"
