#!/usr/bin/env bash
# Compare a softmax, MoS and DOC on Penn Treebank, each trained for nine epochs:
#     examples/small_comparison/compare.sh DATA DIR [options of fairseq-doc compare] [-- options of fairseq-train]
# DATA: the folder of fairseq-doc prepare-lm ptb; DIR: a folder for the trainings and the table. A second call resumes. A
# system's own options win over those of fairseq-train.
set -euo pipefail
[ $# -ge 2 ] || { echo "expected DATA DIR; got $# arguments" >&2; exit 2; }
source "$(dirname "$0")/systems.sh"
compare "$1" "$2" "${systems[@]}" "${@:3}"
