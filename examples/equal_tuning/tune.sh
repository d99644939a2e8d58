#!/usr/bin/env bash
# Tune one system on Penn Treebank with a budget of 1M parameters:
#     examples/equal_tuning/tune.sh SYSTEM DATA STUDIES [options of fairseq-doc tune]
# SYSTEM: lstm1, lstm2, rhn5 or nas1 (one softmax), mos3 or doc3 (three components on the LSTM of two layers);
# DATA: the folder of fairseq-doc prepare-lm ptb; STUDIES: a folder for the studies. A second call resumes.
# When all systems are tuned, --trials 17 --enqueue OTHER --enqueue OTHER ... tries the best settings of others too.
set -euo pipefail
[ $# -ge 3 ] || { echo "expected SYSTEM DATA STUDIES; got $# arguments" >&2; exit 2; }
here="$(cd "$(dirname "$0")" && pwd)"
source "$here/systems.sh"
source "$here/../studies.sh"
system="$1" data="$2" studies="$3"
shift 3
model=$(model_of "$system")
mkdir -p "$studies"
tune "$system" "$here/space.yaml" --trials 12 --startup-trials 6 "$@" -- \
    fairseq-train "$data" $model $tuned_training --seed 1
