#!/usr/bin/env bash
# One table of systems after tune.sh and, where it was run, average.sh: perplexities of the three seeds, and how far
# each system is from the first in standard deviations:
#     examples/equal_tuning/evaluate.sh DATA STUDIES SYSTEM...
set -euo pipefail
scripts="$(cd "$(dirname "$0")/../../scripts" && pwd)"
data="$1" studies="$2"
shift 2
[ $# -gt 0 ] || { echo "expected systems after $studies; got none" >&2; exit 1; }
models=()
for system in "$@"; do
    models+=("$system=$studies/$system/rerun-*/checkpoints")
done
for system in "$@"; do
    if compgen -G "$studies/$system/averaged-*/done" >/dev/null; then
        models+=("$system, averaged=$studies/$system/averaged-*")
    fi
done
python "$scripts/compare_seeds.py" "$data" "${models[@]}"
