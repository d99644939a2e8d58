#!/usr/bin/env bash
# A table of systems after tune.sh, and one of those after average.sh: perplexities of the three seeds, and how far each
# system is from the first in standard deviations:
#     examples/equal_tuning/evaluate.sh DATA STUDIES SYSTEM...
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
source "$here/systems.sh"
data="$1" studies="$2"
shift 2
[ $# -gt 0 ] || { echo "expected systems after $studies; got none" >&2; exit 1; }
tuned=() averaged=()
for system in "$@"; do
    found=$(seeds_of "$system" "$studies")
    mapfile -t folders <<<"$found"
    its_tuned="" its_averaged=""
    for folder in "${folders[@]}"; do
        its_tuned+=":$folder/checkpoints"
        average=$(average_of "$folder")
        [ ! -e "$average/done" ] || its_averaged+=":$average"
    done
    tuned+=("$system=${its_tuned#:}")
    [ -z "$its_averaged" ] || averaged+=("$system, averaged=${its_averaged#:}")
done
compare() { python "$here/../../scripts/compare_seeds.py" "$data" "$@"; }
compare "${tuned[@]}"
[ ${#averaged[@]} = 0 ] || { echo; compare "${averaged[@]}"; }
