#!/usr/bin/env bash
# Build .venv with the versions in constraints.txt, unless it is up to date.
#
#     scripts/setup.sh [--cpu]
#
# --cpu, or FAIRSEQ_DOC_CPU=1, installs a torch without CUDA, and fails if pip finds none. PYTHON names the
# interpreter, CONSTRAINTS another file of versions (empty: the newest versions), FAIRSEQ another distribution
# of fairseq.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "setup: $*" >&2; exit 1; }

case $* in
'' | --cpu) [ -z "$*" ] || FAIRSEQ_DOC_CPU=1 ;;
*) fail "expected no argument or --cpu; got $*" ;;
esac
cpu=${FAIRSEQ_DOC_CPU:-0}
constraints=${CONSTRAINTS-constraints.txt}
[ -z "$constraints" ] || [ -f "$constraints" ] || fail "expected a file of versions; got $constraints"

supported='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))'

find_python() {
    local candidates=(python3.11 python3.12 python3.13 python3)
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
    fail "expected Python 3.11, 3.12 or 3.13 (3.14 cannot import fairseq), got $got," \
        "$("$got" --version 2>&1 || true); install one, or name it: PYTHON=/path/to/python3.11 $0"
fi
made_with=$(cat .venv/constraints 2>/dev/null || echo "$constraints")
[ "$made_with" = "$constraints" ] ||
    fail "expected a .venv made with CONSTRAINTS=$constraints, got one with CONSTRAINTS=$made_with; give that, or" \
        "remove .venv"
if [ "$cpu" != 0 ] && compgen -G '.venv/lib/python3*/site-packages/nvidia' >/dev/null; then
    fail "expected a .venv without CUDA, got one with it; remove .venv, or leave out --cpu"
fi
stamp=$({ "$python" --version; cat pyproject.toml ${constraints:+"$constraints"}; } | cksum)
if [ -f .venv/installed ] && [ "$(cat .venv/installed)" = "$stamp" ]; then
    [ -z "${FAIRSEQ:-}" ] || .venv/bin/python -m pip show -q "$FAIRSEQ" 2>/dev/null ||
        fail "expected a .venv with $FAIRSEQ, got one with another distribution of fairseq; remove .venv"
    exit 0
fi
"$python" -c 'import venv, ensurepip' 2>/dev/null || fail "expected Python's venv; install python3-venv"

step() { # number, what it does
    echo "setup: step $1 of 4, after $SECONDS s: $2"
}

pip() { .venv/bin/python -m pip --disable-pip-version-check "$@"; }

versions=(${constraints:+--constraint "$constraints"})

SECONDS=0
rm -f .venv/installed
step 1 "makes .venv with $("$python" --version)"
# An interrupted build may have left an interpreter without pip.
.venv/bin/python -m pip --version >/dev/null 2>&1 || "$python" -m venv .venv
[ "$(.venv/bin/python --version)" = "$("$python" --version)" ] ||
    fail "expected .venv to hold $("$python" --version), got $(.venv/bin/python --version); remove" \
        ".venv, or name its interpreter: PYTHON=..."

echo "$constraints" >.venv/constraints
pip install --quiet "${versions[@]}" --upgrade pip # the oldest of these Pythons bring one without --json

# Report the size of torch before downloading it: the default build for Linux on x86-64 includes CUDA.
torch=torch
if ! compgen -G '.venv/lib/python3*/site-packages/torch/version.py' >/dev/null; then
    offered=$(pip index versions torch --json) || fail "expected torch where pip looks, got none"
    offered=$(.venv/bin/python -c 'import json, sys; print(*json.loads(sys.argv[1])["versions"])' "$offered")
    version=
    [ -z "$constraints" ] || version=$(sed -n 's/^torch==//p' "$constraints")
    [ -n "$version" ] || version=${offered%% *}
    version=${version%+*}
    needed_mib=2200 hint=
    if [[ " $offered " != *" $version+cpu "* ]] && [ "$(uname -m)" = x86_64 ]; then
        [ "$cpu" = 0 ] ||
            fail "expected a CPU build of torch $version where pip looks, got none; give pip the address" \
                "that PyTorch's installation page names for the CPU (PIP_EXTRA_INDEX_URL), or take the" \
                "default build"
        needed_mib=7500 hint="; --cpu takes a smaller torch"
    elif [ "$cpu" != 0 ] && [[ " $offered " == *" $version+cpu "* ]]; then
        torch=torch==$version+cpu
    fi
    free_mib=$(df -Pm . | awk 'NR == 2 { print $4 }')
    [ "$free_mib" -ge "$needed_mib" ] ||
        fail "expected $needed_mib MiB of free space for .venv with torch $version, got $free_mib$hint"
fi

step 2 "installs torch"
pip install --quiet "${versions[@]}" "$torch"
step 3 "installs fairseq"
scripts/install_fairseq.sh .venv/bin/python "${versions[@]}"
step 4 "installs this package and the tools of its tests"
PYTHONWARNINGS=ignore pip install --quiet --no-warn-conflicts "${versions[@]}" --editable '.[dev,tune,onnx,transformers]'
# fairseq looks for --user-dir in the current folder, then next to itself. A wheel of this package must not be
# installed here, since pip would write its files through the link.
packages=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
ln -sfn "$PWD/fairseq_doc" "$packages/fairseq_doc"
echo "$stamp" >.venv/installed
echo "setup: done after $SECONDS s"
