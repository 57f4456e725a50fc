#!/usr/bin/env bash
# What the tests of the pipeline need and pip does not give: a JDK, and Spark's own Kafka connector (through Maven).
# Without a JDK there is no Spark, and that is an error; without the connector its tests are skipped.
set -uo pipefail
cd "$(dirname "$0")/../.."
room=pipeline
. tests/needs.sh

need java 'java_is_new_enough java' openjdk-17-jdk-headless || exit 1
maven_jars tests/pipeline/connector/pom.xml .cache/spark-connector ||
    lacks connector failed "Maven could not fetch Spark's own connector"
exit 0
