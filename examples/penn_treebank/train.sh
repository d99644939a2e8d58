#!/usr/bin/env bash
# The published Penn Treebank run (Tables 2, 3 and 6). DATA is the folder that fairseq-doc prepare-lm
# wrote. Further options go to fairseq-train and override these.
set -euo pipefail
fairseq-train "${DATA:-data-bin/ptb}" --user-dir fairseq_doc \
    --task bptt_language_modeling --bptt 70 --max-length-delta 40 \
    --arch lstm_doc_lm_ptb --doc-components 0,0,5,15 \
    --criterion doc_cross_entropy --doc-balance published --doc-lambda 0.001 \
    --ar-alpha 2 --tar-beta 1 \
    --optimizer nt_asgd --lr-scheduler nt_asgd --lr 20 --nonmono 60 \
    --weight-decay 1.2e-6 --clip-norm 0.25 \
    --batch-size 12 --batch-size-valid 10 --max-epoch 500 --seed 28 --num-workers 0 --distributed-world-size 1 \
    --save-dir checkpoints/ptb --no-epoch-checkpoints \
    --log-format simple --log-interval 200 "$@"
