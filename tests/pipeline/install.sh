#!/usr/bin/env bash
# What the tests of the pipeline need and pip does not give: a JDK, and Spark's own Kafka connector (through Maven).
#
# Takes what is here, installs the rest with apt-get and Maven. Without a JDK there is no Spark, and that is an error;
# without the connector its tests are skipped.
set -uo pipefail
cd "$(dirname "$0")/../.."
target=.cache/spark-connector
mkdir -p .cache

debian() { # packages...
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "pipeline: not installed, and only root may install it: apt-get install $*" >&2
        return 1
    fi
    echo "pipeline: installing $*"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >/dev/null
}

java_is_new_enough() {
    local version
    version=$("${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -1)
    [ "${version:-0}" -ge 17 ]
}

java_is_new_enough || debian openjdk-17-jdk-headless || exit 1
if [ ! -e "$target/complete" ] || [ tests/pipeline/connector/pom.xml -nt "$target/complete" ]; then
    command -v mvn >/dev/null || debian maven || exit 0
    echo "pipeline: fetching Spark's own connector"
    rm -rf "$target"
    mkdir -p "$target"
    if mvn -q -B -f tests/pipeline/connector/pom.xml dependency:copy-dependencies \
        -DoutputDirectory="$PWD/$target" >.cache/spark-connector.log 2>&1; then
        touch "$target/complete"
    else
        tail -5 .cache/spark-connector.log >&2
        echo "pipeline: Maven could not fetch Spark's own connector; its tests are skipped" >&2
    fi
fi
exit 0
