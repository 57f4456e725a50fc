#!/usr/bin/env bash
# try_package.sh [PYTHON]...: builds the packages (.ci/wheels), installs sdist and pure wheel each into a fresh environment
# with every PYTHON (default: $PYTHON or python3), lets pip choose between all of them, and each time starts a cluster,
# produces, consumes and stops, from a directory with packages of our rooms' names.
# Needs a package index. Leaves nothing behind; --keep keeps the packages in dist/.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
keep=
if [ "${1:-}" = --keep ]; then
  keep=1
  shift
fi
pythons=("$@")
[ ${#pythons[@]} -gt 0 ] || pythons=("${PYTHON:-python3}")

work=$(mktemp -d)
data=$work/cluster
barnabas=
finish() {
  [ -z "$barnabas" ] || "$barnabas" cluster down --data "$data" > /dev/null 2>&1 || true
  rm -rf "$work"
}
trap finish EXIT

mkdir "$work/project"
install() {
  "$1/bin/python" -m pip install --quiet --disable-pip-version-check --constraint "$root/constraints.txt" "${@:2}"
}

"$root/.ci/wheels" "$work/dist" "${pythons[@]}"
if [ -n "$keep" ]; then
  mkdir -p "$root/dist"
  cp "$work"/dist/* "$root/dist/"
fi

# The only top-level names are these: a project may have its own folders `protocol`, `storage`, and so on.
names=$("${pythons[0]}" - "$work"/dist/*-none-any.whl << 'END'
import sys, zipfile
tops = {name.split("/")[0] for name in zipfile.ZipFile(sys.argv[1]).namelist()}
print(*sorted(top for top in tops if not top.endswith(".dist-info")))
END
)
[ "$names" = "barnabas pyspark_barnabas.py pyspark_barnabas_segments.py" ] || { echo "the wheel has $names"; exit 1; }
for room in broker kraft protocol runtime settings storage; do
  mkdir "$work/project/$room"
  echo 'HERE = "in the project"' > "$work/project/$room/__init__.py"
done

use() {
  local is_compiled=$1 name=$2 port
  rm -rf "$data"
  cd "$work/project"
  barnabas=$work/environment/bin/barnabas
  port=$("$work/environment/bin/python" -c 'from barnabas.cluster.ports import free_base_port; print(free_base_port())')
  "$barnabas" cluster up --data "$data" --base-port "$port" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
  "$work/environment/bin/python" -c '
import sys
import broker, kraft, protocol, runtime, settings, storage
import barnabas.cluster.simulated, barnabas.pipeline.addresses
from barnabas import Consumer, Producer
from barnabas.protocol.records.record import COMPILED
assert {each.HERE for each in (broker, kraft, protocol, runtime, settings, storage)} == {"in the project"}
assert COMPILED is (sys.argv[1] == "compiled")' "$is_compiled"
  "$barnabas" topics create packages --partitions 1 --data "$data" > /dev/null
  printf 'one\ntwo\n' | "$barnabas" produce packages --quiet --data "$data"
  found=$("$barnabas" consume packages --from-beginning --exit --quiet --data "$data" | tr '\n' ' ')
  [ "$found" = "one two " ] || { echo "consumed '$found'"; exit 1; }
  "$barnabas" cluster down --data "$data" > /dev/null
  echo "$("$barnabas" --version): $name works"
  barnabas=
}

try() {
  rm -rf "$work/environment"
  "$1" -m venv "$work/environment"
  install "$work/environment" "$2"
  use pure "$(basename "$2")"
}

pip_chooses() {
  "$work/environment/bin/python" -m pip "$1" --quiet --disable-pip-version-check --no-deps --no-index \
    --find-links "$work/dist" "${@:2}" barnabas
}

for python in "${pythons[@]}"; do
  try "$python" "$work"/dist/*.tar.gz
  try "$python" "$work"/dist/*-none-any.whl
  tag=$("$python" -c 'import sys; print(sys.implementation.cache_tag.replace("cpython-", "cp"))')
  compiled=$(echo "$work"/dist/*-"$tag"-"$tag"-*.whl)
  if [ -e "$compiled" ]; then
    pip_chooses install --force-reinstall
    use compiled "$(basename "$compiled")"
  fi
done

# A platform for which nothing was compiled gets the pure wheel.
pip_chooses download --dest "$work/elsewhere" --only-binary :all: --platform plan9_mips
[ "$(echo "$work"/elsewhere/*)" = "$(echo "$work/elsewhere/$(basename "$work"/dist/*-none-any.whl)")" ] ||
  { echo "elsewhere pip chose $(ls "$work/elsewhere")"; exit 1; }
