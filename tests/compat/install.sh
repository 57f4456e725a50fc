#!/usr/bin/env bash
# What other people's programs need and pip does not give: kcat, PostgreSQL, a JDK, Kafka's jars (through Maven). A run that must show
# every client is pytest --every-client. KAFKA_LIBS may name a directory that already has the jars.
set -uo pipefail
cd "$(dirname "$0")/../.."
room=compat
. tests/needs.sh

jars() {
    if [ -n "${KAFKA_LIBS:-}" ]; then
        compgen -G "$KAFKA_LIBS/kafka-tools-*.jar" >/dev/null || lacks java failed "KAFKA_LIBS=$KAFKA_LIBS has no kafka-tools jar"
    elif ! maven_jars tests/compat/java-tools/pom.xml .cache/kafka-libs -DincludeScope=runtime; then
        lacks java failed "Maven could not fetch Kafka's jars"
    fi
}

need kcat 'command -v kcat' kcat
need postgresql 'command -v initdb || compgen -G "/usr/lib/postgresql/*/bin/initdb"' postgresql
need java 'java_is_new_enough javac' openjdk-17-jdk-headless && jars
exit 0
