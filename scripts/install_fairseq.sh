#!/usr/bin/env bash
# Install fairseq 0.12 into the environment of an interpreter, but not torch, nor what is not used here:
# torchaudio and the extensions that need torch's headers.
#
#     scripts/install_fairseq.sh [PYTHON] [PIP OPTION...]
#
# FAIRSEQ names a distribution other than fairseq-fixed, such as ve-fairseq. An installed one is kept.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=${1:-python3}
shift || true

fail() { echo "install_fairseq: $*" >&2; exit 1; }

install() { "$python" -m pip install --quiet --disable-pip-version-check --no-warn-conflicts "$@"; }

there=$("$python" - <<'END'
from importlib import metadata

for found in metadata.distributions():
    if "fairseq" in (found.read_text("top_level.txt") or "").split():
        print(found.metadata["Name"], found.version)
END
)
[ "$(wc -l <<<"$there")" = 1 ] ||
    fail "expected one distribution of fairseq; got $(tr '\n' ',' <<<"$there") uninstall all, then start again"
fairseq=${FAIRSEQ:-${there%% *}}
fairseq=${fairseq:-fairseq-fixed}
case $there in
'' | "$fairseq "*) ;;
*) fail "expected an environment without fairseq; got $there: keep it, or uninstall it first" ;;
esac

if ! no_wheel=$(install --no-deps --only-binary :all: "$fairseq" "$@" 2>&1); then
    grep -Eq 'No matching distribution|ResolutionImpossible' <<<"$no_wheel" || fail "$(grep ERROR <<<"$no_wheel" | tail -n 1)"
    command -v "${CXX:-g++}" >/dev/null || fail "expected a C++ compiler, got none; install g++"
    "$python" - <<'END' || fail "expected Python's headers, got none; install python3-dev"
import os, sys, sysconfig

sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))
END
    install setuptools wheel cython numpy "$@"
    # Without pip's cache, in which other projects would find this wheel without its three extensions.
    PYTHONPATH=$here/torch_stand_in install --no-cache-dir --no-deps --no-build-isolation "$fairseq" "$@"
fi

needed=$(mktemp)
trap 'rm -f "$needed"' EXIT
"$python" - >"$needed" <<'END'
import re
from importlib import metadata

for found in metadata.distributions():
    if "fairseq" in (found.read_text("top_level.txt") or "").split():
        for requirement in found.requires or ():
            name = re.match(r"[\w.-]+", requirement)[0]
            if "extra ==" not in requirement and name not in ("torch", "torchaudio"):
                print(requirement)
END
install --requirement "$needed" "$@"
