#!/usr/bin/env bash
# Systems from scratch and mixtures grown from one softmax, at equal epochs, with several seeds:
#     examples/multi30k/seeds.sh DATA TEXTS FOLDER SEEDS SYSTEM... [options of fairseq-doc compare]
# DATA: the folder of fairseq-doc prepare-mt, NAME.en-de or NAME.de-en; TEXTS: the folder of the raw text. A system is
# fairseq, softmax, linear, i3 or i2i3 of systems.sh, trained for eight epochs, then for three, or grown_linear, grown_i3 or
# grown_i2i3, whose first eight epochs are those of softmax. Beam and length penalty of each system are chosen on the first
# split, over its seeds together. A second call resumes, and may name more seeds or systems. For other data: PAIR, SPLITS and
# METRICS of tabulate.sh, and UPDATES, the updates of an epoch.
set -euo pipefail
[ $# -ge 5 ] || { echo "expected DATA TEXTS FOLDER SEEDS SYSTEM...; got $# arguments" >&2; exit 2; }
here="$(cd "$(dirname "$0")" && pwd)"
source "$here/systems.sh"
data="${1%/}" texts="$2" folder="$3" seeds="$4"
shift 4
pair="${PAIR:-${data##*.}}"
source="${pair%-*}" target="${pair#*-}"
read -ra splits <<<"${SPLITS:-val test_2016_flickr test_2017_flickr}"
for text in "${splits[@]}"; do
    for side in "$source" "$target"; do # used last, after hours
        [ -s "$texts/$text.$side" ] || { echo "expected a text $texts/$text.$side; got none" >&2; exit 1; }
    done
done
# The best settings of README.md
settings="--dropout 0.1 --label-smoothing 0.024680946659097227 --clip-norm 10"
lambda="--doc-lambda 0.11013606881281295"

first=() second=() names=()
# add LIST NAME OPTIONS: a system, once
add() {
    local -n list="$1"
    [[ " ${list[*]%%=*} " = *" $2 "* ]] || list+=("$2=$3")
}
while [ $# -gt 0 ] && [[ $1 != -* ]]; do
    base="${1#grown_}"
    case "$1" in
        grown_softmax | grown_fairseq) echo "expected grown_linear, grown_i3 or grown_i2i3; got $1" >&2; exit 1 ;;
    esac
    model="$(model_of "$base")"
    case "$base" in i*) model="$model $lambda" ;; esac
    if [ "$1" = "$base" ]; then
        add first "$base" "$model"
        start="--finetune-from-model '$folder/first/$base-seed{seed}/checkpoints/checkpoint_best.pt'"
    else
        add first softmax "$(model_of softmax)"
        start="--grow-from '$folder/first/softmax-seed{seed}/checkpoints/checkpoint_best.pt'"
        case "$base" in i2*) start="--doc-weight-bias $start" ;; esac
    fi
    add second "$1" "$model $start"
    names+=("$1")
    shift
done

# train STAGE SYSTEM... [options of fairseq-doc compare] -- fairseq-train ...
train() {
    fairseq-doc compare --dir "$folder/$1" --reference "$texts/${splits[1]}.$target" --seeds "$seeds" "${@:2}"
}
common="-s $source -t $target $training $settings"
train first "${first[@]}" "$@" -- fairseq-train "$data" $common $(updates 8) --lr 0.009127167047393407
train second "${second[@]}" "$@" -- fairseq-train "$data" $common $(updates 3) --lr 0.004 --warmup-updates 100

PAIR="$pair" SPLITS="${splits[*]}" exec "$here/tabulate.sh" "$data" "$texts" "$folder/second" "$seeds" "${names[@]}"
