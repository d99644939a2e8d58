#!/usr/bin/env bash
# Set up the environment, prepare a small corpus, train two language models on it, evaluate them and
# plot their learning curves. Finished steps are not repeated: an interrupted run resumes, and a finished
# run is only evaluated again.
set -euo pipefail
cd "$(dirname "$0")/.."
./scripts/setup.sh
SECONDS=0
PATH=$PWD/.venv/bin:$PATH
# Matrices this small are multiplied faster by one thread than by two, so each model trains on its own
# core.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

data=data-bin/quickstart
runs=checkpoints/quickstart
mkdir -p "$runs"
[ -d "$data" ] || fairseq-doc prepare-lm pydoc "$data"

# Little dropout, since the text is short. With --nonmono 2, averaging started before epoch 29 for both
# models with every seed tried.
train() { # name, architecture, further options
    local name=$1 arch=$2
    echo "quickstart: training $name ($arch)"
    fairseq-train "$data" --user-dir fairseq_doc --task bptt_language_modeling --arch "$arch" \
        --decoder-embed-dim 64 --layer-dims 128,128,64 "${@:3}" \
        --input-dropout 0.1 --hidden-dropout 0.1 --output-dropout 0.1 --weight-dropout 0.1 \
        --criterion doc_cross_entropy --ar-alpha 2 --tar-beta 1 \
        --optimizer nt_asgd --lr-scheduler nt_asgd --lr 20 --nonmono 2 \
        --clip-norm 0.25 --weight-decay 1.2e-6 --batch-size 10 --batch-size-valid 10 \
        --bptt 35 --max-length-delta 20 --max-epoch 32 --seed 1 --num-workers 0 \
        --distributed-world-size 1 --save-dir "$runs/$name" --no-epoch-checkpoints \
        --log-format simple --log-interval 100 2>&1 </dev/null | tee -a "$runs/$name.log" |
        sed -nuE "s/.*\| valid \| epoch 0*([0-9]+) .*\| ppl ([0-9.e+]+) .*/  $name, epoch \1: validation perplexity \2/p" ||
        { tail -n 3 "$runs/$name.log" >&2; exit 1; }
}

evaluate() { # name
    fairseq-eval-lm "$data" --user-dir fairseq_doc --task bptt_language_modeling --num-workers 0 \
        --path "$runs/$1/checkpoint_best.pt" --gen-subset test >"$runs/$1.eval.log" 2>&1 </dev/null ||
        { tail -n 3 "$runs/$1.eval.log" >&2; exit 1; }
}

found() { # name -> "perplexity tokens"
    sed -nE 's/.*Evaluated ([0-9,]+) tokens.*/\1/p; s/.*Perplexity: ([0-9.]+).*/\1/p' \
        "$runs/$1.eval.log" | tr -d , | tac | tr '\n' ' '
}

set -m # each of these is a separate job, which ends with this script
trap 'for job in $(jobs -pr); do kill -- "-$job" 2>/dev/null || true; done' EXIT
{ train one_softmax lstm_awd_lm_small; evaluate one_softmax; } &
softmax=$!
[ "$(env -u OMP_NUM_THREADS nproc)" -ge 2 ] || wait "$softmax"
train doc lstm_doc_lm_small --doc-components 0,0,2,2 --component-dropout 0.1 \
    --doc-balance published --doc-lambda 0.001 &
doc=$!
# The first job that fails ends the script and thus the other job. 127: no job is left.
while [ -n "$(jobs -pr)" ]; do wait -n || [ $? = 127 ]; done
wait "$softmax"
wait "$doc"
evaluate doc &
doc=$!
fairseq-doc curves "$runs/curves.png" --overwrite \
    "one softmax=$runs/one_softmax.log" "DOC=$runs/doc.log"
wait "$doc"
read -r softmax_ppl tokens <<<"$(found one_softmax)"
read -r doc_ppl _ <<<"$(found doc)"
echo "quickstart: one softmax $softmax_ppl, doc $doc_ppl, $tokens tokens, $SECONDS s"
