#!/usr/bin/env bash
# The published recipe on English-German pairs of Tatoeba, nearly as many as IWSLT16 has, but shorter: one softmax, i_3 = 2 and
# i_2 = i_3 = 2, evaluated as in ../multi30k/seeds.sh.
#     examples/iwslt16/tatoeba.sh SEEDS [options of fairseq-train]
# DATA is the prepared folder, DIR that of the runs. The same command resumes. FAIRSEQ_DOC_DATA is the folder with tatoeba/.
set -euo pipefail
[[ ${1:-} =~ ^[1-9][0-9]*$ ]] || { echo "expected a number of seeds; got ${1:-nothing}" >&2; exit 2; }
here="$(cd "$(dirname "$0")" && pwd)"
texts="${FAIRSEQ_DOC_DATA:?is the folder with tatoeba/}/tatoeba"
export DATA="${DATA:-data-bin/tatoeba.en-de}" SRC=en TGT=de PAIR=en-de
runs="${DIR:-checkpoints/tatoeba.en-de}"
for text in en-de.valid.en en-de.valid.de en-de.test.en en-de.test.de; do # used last, after hours
    [ -s "$texts/$text" ] || { echo "expected a text $texts/$text; got none" >&2; exit 1; }
done
[ -f "$DATA/dict.en.txt" ] ||
    fairseq-doc prepare-mt en de "$texts" "$DATA" --train en-de.train --valid en-de.valid --test en-de.test
given="$DATA ${*:2}"
[[ ! " $given" =~ " --seed"|" --save-dir" ]] || { echo "expected no --seed and --save-dir; got ${*:2}" >&2; exit 2; }
for seed in $(seq "$1"); do
    for system in plain i3 doc; do
        run="$runs/$system-seed$seed"
        mkdir -p "$run"
        [ -e "$run/options" ] || echo "$given" >"$run/options"
        [ "$(<"$run/options")" = "$given" ] || {
            echo "$run has data and options '$(<"$run/options")'; got '$given': name another folder, DIR=..." >&2
            exit 1
        }
        [ ! -e "$run/trained" ] || continue
        script=train_$system.sh
        "$here/${script/_doc/}" --matmul-precision bfloat16 --seed "$seed" --save-dir "$run/checkpoints" "${@:2}" 2>&1 |
            tee -a "$run/train.log"
        touch "$run/trained"
    done
done
SPLITS="en-de.valid en-de.test" exec "$here/../multi30k/tabulate.sh" "$DATA" "$texts" "$runs" "$1" plain i3 doc
