#!/usr/bin/env bash
# try_package.sh [PYTHON]...: builds sdist and wheel, installs each into a fresh environment with every PYTHON (default:
# $PYTHON or python3), and from a directory with packages of our rooms' names starts a cluster, produces, consumes, stops.
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

# Only tracked files: what is not committed would be missing in the package of somebody else.
mkdir "$work/source" "$work/project"
git -C "$root" ls-files -z --cached --others --exclude-standard | (cd "$root" && xargs -0 tar cf - --no-recursion) | tar xf - -C "$work/source"

install() {
  "$1/bin/python" -m pip install --quiet --disable-pip-version-check --constraint "$root/constraints.txt" "${@:2}"
}

"${pythons[0]}" -m venv "$work/build"
install "$work/build" build
# The wheel is made from the sdist, so a file that the sdist lacks is missing in both.
"$work/build/bin/python" -m build --outdir "$work/dist" "$work/source" > "$work/build.log" 2>&1 || { tail -30 "$work/build.log"; exit 1; }
if [ -n "$keep" ]; then
  mkdir -p "$root/dist"
  cp "$work"/dist/* "$root/dist/"
fi

# The only top-level names are these: a project may have its own folders `protocol`, `storage`, and so on.
names=$("${pythons[0]}" - "$work"/dist/*.whl << 'END'
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

try() {
  local python=$1 package=$2 port
  rm -rf "$work/environment" "$data"
  "$python" -m venv "$work/environment"
  install "$work/environment" "$package"
  cd "$work/project"
  barnabas=$work/environment/bin/barnabas
  port=$("$work/environment/bin/python" -c 'from barnabas.cluster.ports import free_base_port; print(free_base_port())')
  "$barnabas" cluster up --data "$data" --base-port "$port" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
  "$work/environment/bin/python" -c '
import broker, kraft, protocol, runtime, settings, storage
import barnabas.cluster.simulated, barnabas.pipeline.addresses
from barnabas import Consumer, Producer
assert {each.HERE for each in (broker, kraft, protocol, runtime, settings, storage)} == {"in the project"}'
  "$barnabas" topics create packages --partitions 1 --data "$data" > /dev/null
  printf 'one\ntwo\n' | "$barnabas" produce packages --quiet --data "$data"
  found=$("$barnabas" consume packages --from-beginning --exit --quiet --data "$data" | tr '\n' ' ')
  [ "$found" = "one two " ] || { echo "consumed '$found'"; exit 1; }
  "$barnabas" cluster down --data "$data" > /dev/null
  echo "$("$barnabas" --version): $(basename "$package") works"
  barnabas=
}

for python in "${pythons[@]}"; do
  for package in "$work"/dist/*; do
    try "$python" "$package"
  done
done
