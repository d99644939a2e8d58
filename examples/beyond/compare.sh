#!/usr/bin/env bash
# Compare DOC with DOC and one thing added, at the small size on Penn Treebank:
#     examples/beyond/compare.sh DATA DIR [options of fairseq-doc compare]
# DATA: the folder of fairseq-doc prepare-lm ptb; DIR: a folder for the trainings and the table. A second call goes on.
set -euo pipefail
data="$1" folder="$2"
shift 2
doc="--arch lstm_doc_lm_small --doc-components 0,0,1,3 --lr 20"
fairseq-doc compare --dir "$folder" plain="$doc" partial_shuffle="$doc --partial-shuffle" \
    weight_norm="$doc --weight-norm 0.1 --weight-norm-target 2" \
    mogrifier="$doc --mogrifier-rounds 5 --mogrifier-rank 21" "$@" -- \
    fairseq-train "$data" --user-dir fairseq_doc --task bptt_language_modeling --matmul-precision bfloat16 \
    --criterion doc_cross_entropy --doc-balance published --doc-lambda 0.001 --ar-alpha 2 --tar-beta 1 \
    --optimizer nt_asgd --lr-scheduler nt_asgd --weight-decay 1.2e-6 --clip-norm 0.25 \
    --batch-size 12 --batch-size-valid 10 --max-epoch 3 --num-workers 0 --distributed-world-size 1 \
    --no-epoch-checkpoints --log-format simple --log-interval 200
