#!/usr/bin/env bash
# Build .venv from pyproject.toml; an environment that is up to date is left as it is. PYTHON chooses the
# interpreter.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "setup: $*" >&2; exit 1; }

needed_mib=4000
headers='import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))'
supported='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))'

find_python() {
    local candidates=(python3.11 python3.12 python3)
    [ -z "${PYTHON:-}" ] || candidates=("$PYTHON")
    for python in "${candidates[@]}"; do
        if command -v "$python" >/dev/null && "$python" -c "$supported" 2>/dev/null; then
            echo "$python"
            return
        fi
    done
}

python=$(find_python)
if [ -z "$python" ]; then
    got=${PYTHON:-python3}
    fail "expected Python 3.11 or 3.12, got $got, $("$got" --version 2>&1 || true); install one, or" \
        "name it: PYTHON=/path/to/python3.11 $0"
fi
stamp=$({ "$python" --version; cat pyproject.toml; } | cksum)
if [ -f .venv/installed ] && [ "$(cat .venv/installed)" = "$stamp" ]; then
    exit 0
fi
command -v "${CXX:-g++}" >/dev/null || fail "expected a C++ compiler, got none; install g++"
"$python" -c "$headers" || fail "expected Python's headers, got none; install python3-dev"
"$python" -c 'import venv, ensurepip' 2>/dev/null || fail "expected Python's venv; install python3-venv"
free_mib=$(df -Pm . | awk 'NR == 2 { print $4 }')
if [ "$free_mib" -lt "$needed_mib" ] && [ ! -f .venv/bin/fairseq-train ]; then
    fail "expected $needed_mib MiB of free space for .venv, got $free_mib"
fi

# The version range that pyproject.toml gives for a dependency, such as torch>=2.13,<2.14.
requirement() {
    "$python" - "$1" <<'END'
import re, sys, tomllib

with open("pyproject.toml", "rb") as file:
    found = tomllib.load(file)["project"]["dependencies"]
print(next(spec for spec in found if re.match(r"[\w-]+", spec)[0] == sys.argv[1]))
END
}

step() { # number, what it does
    echo "setup: step $1 of 4, after $SECONDS s: $2"
}

install() { .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@"; }

SECONDS=0
rm -f .venv/installed
step 1 "makes .venv with $("$python" --version)"
# An interrupted build may have left an interpreter without pip.
.venv/bin/python -m pip --version >/dev/null 2>&1 || "$python" -m venv .venv
[ "$(.venv/bin/python --version)" = "$("$python" --version)" ] ||
    fail "expected .venv to hold $("$python" --version), got $(.venv/bin/python --version); remove" \
        ".venv, or name its interpreter: PYTHON=..."
step 2 "installs torch and what builds fairseq"
install "$(requirement torch)" "$(requirement numpy)" \
    'setuptools>=84,<85' 'wheel>=0.48,<0.49' 'cython>=3.3,<3.4'

# fairseq's six extensions have one or two source files each, so whole extensions are compiled in parallel:
# one for each core, with 2 GiB of memory each. ninja would only compile the files of one extension in
# parallel. It cannot run for two extensions at once, since torch keeps one build file for all of them. So
# ninja is hidden. The extensions are built against the torch above; pip's isolated build would install a
# second one.
free_gib=$(awk '/MemAvailable/ { print int($2 / 2 ^ 20) }' /proc/meminfo)
jobs=$(nproc)
[ "$jobs" -le $((free_gib / 2)) ] || jobs=$((free_gib / 2))
[ "$jobs" -ge 1 ] || jobs=1
step 3 "compiles fairseq in $jobs processes; two take about 2 minutes"
building=$(mktemp -d)
trap 'rm -rf "$building"' EXIT
printf '[build_ext]\nparallel = %s\n' "$jobs" >"$building/setup.cfg"
printf '#!/bin/sh\nexit 1\n' >"$building/ninja"
chmod +x "$building/ninja"
PATH=$building:$PATH DIST_EXTRA_CONFIG=$building/setup.cfg \
    install --no-build-isolation "$(requirement fairseq-fixed)"
step 4 "installs this package and the tools of its tests"
install --editable '.[dev,tune,onnx,transformers]'
echo "$stamp" >.venv/installed
echo "setup: done after $SECONDS s"
