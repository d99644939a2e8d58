#!/usr/bin/env bash
# Build .venv from setup.py; at once when nothing changed. PYTHON chooses the interpreter.
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
    fail "expected Python 3.11 or 3.12, got ${PYTHON:-$(python3 --version 2>&1 || true)}; install" \
        "one, or name it: PYTHON=/path/to/python3.11 $0"
fi
stamp=$({ "$python" --version; cat setup.py pyproject.toml; } | cksum)
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

echo "setup: building .venv with $("$python" --version); the first time takes some minutes"
rm -f .venv/installed
# An interrupted build may have left an interpreter without pip.
.venv/bin/python -m pip --version >/dev/null 2>&1 || "$python" -m venv .venv
[ "$(.venv/bin/python --version)" = "$("$python" --version)" ] ||
    fail "expected .venv to hold $("$python" --version), got $(.venv/bin/python --version); remove" \
        ".venv, or name its interpreter: PYTHON=..."
.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
echo "$stamp" >.venv/installed
