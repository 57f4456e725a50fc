#!/usr/bin/env bash
# What other people's clients need and pip does not give: kcat, a JDK, Kafka's jars.
#
# Takes what is here, installs the rest with apt-get and Maven. What could not be had is written to
# .cache/compat/missing, one `thing<TAB>impossible|failed<TAB>why` in a line: the tests of it are skipped, and a run
# that must show every client (pytest --every-client) then fails on `failed`, but not on `impossible`.
# KAFKA_LIBS may name a directory that already has the jars.
set -uo pipefail
cd "$(dirname "$0")/../.."
missing=.cache/compat/missing
mkdir -p .cache/compat
: >"$missing"
apt_updated=

lacks() { # thing, impossible|failed, why
    printf '%s\t%s\t%s\n' "$1" "$2" "$3" >>"$missing"
    echo "compat: no $1: $3" >&2
}

debian() { # packages...
    if [ -z "$apt_updated" ]; then
        apt-get update -qq && apt_updated=yes
    fi
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >/dev/null
}

need() { # thing, test command, packages...
    local thing=$1 test=$2
    shift 2
    if eval "$test" >/dev/null 2>&1; then
        return 0
    elif [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        lacks "$thing" impossible "it is not installed, and only root may install it (apt-get install $*)"
        return 1
    fi
    echo "compat: installing $*"
    if ! debian "$@" || ! eval "$test" >/dev/null 2>&1; then
        lacks "$thing" failed "apt-get install $* failed"
        return 1
    fi
}

java_is_new_enough() {
    local version
    command -v javac >/dev/null || return 1
    version=$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -1)
    [ "${version:-0}" -ge 17 ]
}

jars() {
    local target=.cache/kafka-libs
    if [ -n "${KAFKA_LIBS:-}" ]; then
        compgen -G "$KAFKA_LIBS/kafka-tools-*.jar" >/dev/null || lacks java failed "KAFKA_LIBS=$KAFKA_LIBS has no kafka-tools jar"
    elif [ ! -e "$target/complete" ] || [ tests/compat/java-tools/pom.xml -nt "$target/complete" ]; then
        need java 'command -v mvn' maven || return
        echo "compat: fetching Kafka's jars"
        rm -rf "$target"
        mkdir -p "$target"
        if mvn -q -B -f tests/compat/java-tools/pom.xml dependency:copy-dependencies \
            -DoutputDirectory="$PWD/$target" -DincludeScope=runtime >.cache/compat/maven.log 2>&1; then
            touch "$target/complete"
        else
            tail -5 .cache/compat/maven.log >&2
            lacks java failed "Maven could not fetch Kafka's jars"
        fi
    fi
}

need kcat 'command -v kcat' kcat
need java java_is_new_enough openjdk-17-jdk-headless && jars
exit 0
