#!/usr/bin/env bash
# Tune one system on Multi30k:
#     examples/multi30k/tune.sh SYSTEM DATA STUDIES [options of fairseq-doc tune]
# SYSTEM: fairseq, softmax, i3 or i2i3; DATA: the folder of fairseq-doc prepare-mt, NAME.en-de or NAME.de-en; STUDIES: a
# folder for the studies. A second call resumes.
set -euo pipefail
[ $# -ge 3 ] || { echo "expected SYSTEM DATA STUDIES; got $# arguments" >&2; exit 2; }
here="$(cd "$(dirname "$0")" && pwd)"
source "$here/systems.sh"
source "$here/../studies.sh"
system="$1" data="${2%/}" studies="$3"
shift 3
model=$(model_of "$system")
pair="${data##*.}"
mkdir -p "$studies"
space="$studies/$system.yaml"
cp "$here/space.yaml" "$space"
case "$system" in i*) echo "doc-lambda: {low: 1e-2, high: 1.0, log: true}" >>"$space" ;; esac
tune "$system" "$space" --trials 13 --startup-trials 6 "$@" -- \
    fairseq-train "$data" -s "${pair%-*}" -t "${pair#*-}" $model $training $(updates 2) --seed 1
