#!/usr/bin/env bash
# What Kafka's own tests need and pip does not give: a JDK and the jars (through Maven).
set -uo pipefail
cd "$(dirname "$0")/../.."
room=kafka-tests
. tests/needs.sh

jars() {
    maven_jars tests/kafka/pom.xml .cache/kafka-tests/jars || lacks java failed "Maven could not fetch Kafka's test jars"
}

need java 'java_is_new_enough javac' openjdk-17-jdk-headless && jars
exit 0
