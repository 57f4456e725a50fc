#!/usr/bin/env bash
# What other people's programs need and the extra `compat` does not give: kcat, PostgreSQL, franz-go (through Go), faust, Quix Streams, a JDK, Kafka's jars
# (through Maven). A run that must show every client is pytest --every-client. KAFKA_LIBS may name a directory that
# already has the jars.
set -uo pipefail
cd "$(dirname "$0")/../.."
room=compat
. tests/needs.sh

jars() {
    if [ -n "${KAFKA_LIBS:-}" ]; then
        compgen -G "$KAFKA_LIBS/kafka-tools-*.jar" >/dev/null || lacks java failed "KAFKA_LIBS=$KAFKA_LIBS has no kafka-tools jar"
    elif ! maven_jars tests/compat/java-tools/pom.xml .cache/kafka-libs -DincludeScope=runtime; then
        lacks java failed "Maven could not fetch Kafka's jars"
    elif ! maven_jars tests/compat/tiered-storage/pom.xml .cache/kafka-tiered-storage -DexcludeTransitive=true; then
        lacks java failed "Maven could not fetch Kafka's remote storage for tests"
    elif [ "${1:-}" = nightly ] && ! maven_jars tests/compat/iceberg-rest/pom.xml .cache/iceberg-rest -DincludeScope=runtime; then
        lacks java failed "Maven could not fetch Iceberg's REST catalogue for tests"
    fi
}

franz_go() { # Go 1.21 and later fetch the version that go.mod asks for.
    PATH=$PATH:/usr/local/go/bin
    local program=.cache/compat/share-group source=tests/compat/programs/share-group
    if ! command -v go >/dev/null || [[ $(go env GOVERSION) =~ ^go1\.(1?[0-9]|20)(\.|$) ]]; then
        lacks franz-go impossible "there is no Go 1.21 or newer"
    elif [ ! -e $program ] || [ -n "$(find $source -newer $program)" ]; then
        go build -C $source -o "$PWD/$program" . || lacks franz-go failed "go build $source failed"
    fi
}

apart() { # A framework that pins what other clients need newer or older has an environment of its own: NAME PACKAGE.
    local place=.cache/compat/$1
    [ -e $place/complete ] && return 0
    if .venv/bin/python -m venv $place && $place/bin/pip install -q "$2"; then
        touch $place/complete
    else
        lacks "$1" failed "pip could not install $2"
    fi
}

need kcat 'command -v kcat' kcat
franz_go
iceberg_spark() { # Spark 4.1 and Iceberg's runtime for it: the Spark of the pipeline has none yet.
    if ! maven_jars tests/compat/iceberg-spark/pom.xml .cache/iceberg-spark -DexcludeTransitive=true; then
        lacks java failed "Maven could not fetch Iceberg's runtime for Spark"
    fi
    apart iceberg-spark pyspark==4.1.1
}

apart faust faust-streaming
apart quixstreams quixstreams
need postgresql 'command -v initdb || compgen -G "/usr/lib/postgresql/*/bin/initdb"' postgresql
need java 'java_is_new_enough javac' openjdk-17-jdk-headless && jars "$@"
[ "${1:-}" = nightly ] && iceberg_spark
exit 0
