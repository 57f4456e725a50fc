#!/usr/bin/env bash
# What the page's tests need and pip does not give: Chromium, and fonts for it.
#
# Takes what is here, and installs the rest with apt-get. What could not be had is written to .cache/page/missing, one
# `thing<TAB>impossible|failed<TAB>why` in a line: the tests are skipped, and a run that must show the page
# (pytest --chromium-required) then fails on `failed`, but not on `impossible`.
set -uo pipefail
cd "$(dirname "$0")/../.."
missing=.cache/page/missing
mkdir -p .cache/page
: >"$missing"

lacks() { # thing, impossible|failed, why
    printf '%s\t%s\t%s\n' "$1" "$2" "$3" >>"$missing"
    echo "page: no $1: $3" >&2
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
    echo "page: installing $*"
    if ! apt-get update -qq ||
        ! DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >/dev/null ||
        ! eval "$test" >/dev/null 2>&1; then
        lacks "$thing" failed "apt-get install $* failed"
        return 1
    fi
}

need chromium 'command -v chromium' chromium
need fonts 'fc-list : family | grep -i -e inter -e dejavu -e liberation -e noto' fontconfig fonts-inter fonts-dejavu-core
exit 0
