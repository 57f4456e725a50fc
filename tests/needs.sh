# For scripts that install what tests need and pip does not give. Sourced with `room` set, in the root of the checkout.
#
# What is here is taken, the rest installed with apt-get. What could not be had is written to .cache/ROOM/missing, one
# `thing<TAB>impossible|failed<TAB>why` in a line: its tests are skipped, and a run that must show everything then fails
# on `failed`, but not on `impossible`.
missing=.cache/$room/missing
mkdir -p ".cache/$room"
: >"$missing"
apt_updated=

lacks() { # thing, impossible|failed, why
    printf '%s\t%s\t%s\n' "$1" "$2" "$3" >>"$missing"
    echo "$room: no $1: $3" >&2
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
    echo "$room: installing $*"
    if ! debian "$@" || ! eval "$test" >/dev/null 2>&1; then
        lacks "$thing" failed "apt-get install $* failed"
        return 1
    fi
}

java_is_new_enough() { # program: java, or javac
    local version
    command -v "${JAVA_HOME:+$JAVA_HOME/bin/}$1" >/dev/null || return 1
    version=$("${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -1)
    [ "${version:-0}" -ge 17 ]
}

maven_jars() { # pom, directory, further arguments of Maven...
    local pom=$1 target=$2
    shift 2
    [ -e "$target/complete" ] && [ ! "$pom" -nt "$target/complete" ] && return 0
    need maven 'command -v mvn' maven || return 1
    echo "$room: fetching jars"
    rm -rf "$target"
    mkdir -p "$target"
    if mvn -q -B -f "$pom" dependency:copy-dependencies -DoutputDirectory="$PWD/$target" "$@" \
        >".cache/$room/maven.log" 2>&1; then
        touch "$target/complete"
    else
        tail -5 ".cache/$room/maven.log" >&2
        return 1
    fi
}
