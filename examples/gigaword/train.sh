#!/usr/bin/env bash
# The published headline run with i_2 = i_3 = 2 (Table 10). DATA is the folder that fairseq-doc
# prepare-headline wrote. Further options go to fairseq-train and override these.
set -euo pipefail
fairseq-train "${DATA:-data-bin/gigaword}" --user-dir fairseq_doc \
    --task translation --source-lang src --target-lang tgt \
    --arch lstm_luong_doc_gigaword --doc-components 0,0,2,2 \
    --criterion doc_cross_entropy --doc-balance published --doc-lambda 0.001 --sentence-avg \
    --optimizer sgd --lr 1.0 --lr-scheduler fixed --force-anneal 10 --lr-shrink 0.5 \
    --clip-norm 1 --batch-size 128 --max-epoch 13 --seed 1 --num-workers 0 --distributed-world-size 1 \
    --save-dir checkpoints/gigaword/doc --no-epoch-checkpoints \
    --log-format simple --log-interval 200 "$@"
