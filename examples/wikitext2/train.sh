#!/usr/bin/env bash
# The published WikiText-2 run (Tables 2 and 8). DATA is the folder that fairseq-doc prepare-lm wrote.
# Further options go to fairseq-train and override these.
set -euo pipefail
fairseq-train "${DATA:-data-bin/wikitext2}" --user-dir fairseq_doc \
    --task bptt_language_modeling --bptt 70 --max-length-delta 20 \
    --arch lstm_doc_lm_wt2 --doc-components 0,0,5,15 \
    --criterion doc_cross_entropy --doc-balance published --doc-lambda 0.001 \
    --ar-alpha 2 --tar-beta 1 \
    --optimizer nt_asgd --lr-scheduler nt_asgd --lr 15 --nonmono 60 \
    --weight-decay 1.2e-6 --clip-norm 0.25 \
    --batch-size 15 --batch-size-valid 10 --max-epoch 500 --seed 1882 --num-workers 0 --distributed-world-size 1 \
    --save-dir checkpoints/wikitext2 --no-epoch-checkpoints \
    --log-format simple --log-interval 200 "$@"
