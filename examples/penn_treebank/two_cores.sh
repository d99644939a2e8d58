#!/usr/bin/env bash
# The published size on two cores: one cycle of the learning rate instead of 500 epochs of NT-ASGD.
#     examples/penn_treebank/two_cores.sh softmax|doc|mos [EPOCHS [options of fairseq-train]]
# EPOCHS: 60 by default; 12 take an evening. The same command resumes; other options need another DIR, the folder of the
# runs. DATA is the prepared folder, FAIRSEQ_DOC_DATA the folder with ptb/.
set -euo pipefail
system=${1:-} epochs=${2:-60}
mixture="--doc-balance published --doc-lambda 0.001 --gradient-sampling 0.01"
case ${CORPUS:=ptb}-$system in
ptb-softmax) options="--arch lstm_awd_lm_ptb" ;;
ptb-doc) options="--arch lstm_doc_lm_ptb $mixture" ;;
ptb-mos) options="--arch lstm_mos_lm_ptb $mixture" ;;
wikitext2-softmax) options="--arch lstm_awd_lm_ptb --input-dropout 0.65 --hidden-dropout 0.2" ;;
wikitext2-doc) options="--arch lstm_doc_lm_wt2 $mixture" ;;
wikitext2-mos) options="--arch lstm_doc_lm_wt2 --doc-components 0,0,0,15 $mixture" ;;
*) echo "expected softmax, doc or mos, with CORPUS ptb or wikitext2; got ${system:-nothing}, $CORPUS" >&2; exit 2 ;;
esac
[[ $epochs =~ ^[1-9][0-9]*$ ]] || { echo "expected a number of epochs; got $epochs" >&2; exit 2; }
[[ " ${*:3}" != *" --save-dir"* ]] || { echo "expected DIR=... instead of --save-dir" >&2; exit 2; }
data=${DATA:-data-bin/$CORPUS} run=${DIR:-checkpoints}/two_cores_${system}_$epochs
[ $CORPUS = ptb ] || run=${run}_$CORPUS
[ -f "$data/dict.txt" ] || fairseq-doc prepare-lm "$CORPUS" "${FAIRSEQ_DOC_DATA:?is the folder with $CORPUS/}/$CORPUS" "$data"

# Updates per epoch: 20 columns in windows of 68.25 steps on average.
declare -A per_epoch=([ptb]=681 [wikitext2]=1530)
updates=$((per_epoch[$CORPUS] * epochs))
mkdir -p "$run"
given="$data ${*:3}"
[ -e "$run/options" ] || echo "$given" >"$run/options"
[ "$(<"$run/options")" = "$given" ] || {
    echo "$run has data and options '$(<"$run/options")'; got '$given': name another folder, DIR=..." >&2
    exit 1
}
# shellcheck disable=SC2086
fairseq-train "$data" --user-dir fairseq_doc \
    --task bptt_language_modeling --bptt 70 --max-length-delta 40 $options \
    --criterion doc_cross_entropy --ar-alpha 2 --tar-beta 1 --matmul-precision bfloat16 \
    --optimizer adam --adam-betas "(0.9,0.99)" --lr 0.003 --clip-norm 0.25 \
    --lr-scheduler polynomial_decay --warmup-updates $((updates * 3 / 10)) --total-num-update $updates \
    --batch-size 20 --batch-size-valid 10 --max-epoch "$epochs" --seed 28 --num-workers 0 \
    --distributed-world-size 1 --save-dir "$run" --no-epoch-checkpoints \
    --log-format simple --log-interval 100 "${@:3}" 2>&1 | tee -a "$run/train.log"

curve=$(dirname "$0")/reference/two_cores_${system}_$epochs.json
[ ! -f "$curve" ] || fairseq-doc curves --check "$curve" "$run/train.log"
for split in valid test; do
    fairseq-doc eval-lm "$data" --path "$run/checkpoint_best.pt" --gen-subset $split
done
