#!/usr/bin/env bash
# Train a language model at the small size on Penn Treebank, DOC with one thing added or another output, all else equal:
#     examples/beyond/variant.sh VARIANT SEED DATA FOLDER
# VARIANT: plain (DOC), partial_shuffle, weight_norm, mogrifier, mos or one_softmax; DATA: the folder of fairseq-doc
# prepare-lm ptb; FOLDER: for the checkpoints. Further options go to fairseq-train. A second call resumes.
set -euo pipefail
variant="$1" seed="$2" data="$3" folder="$4"
shift 4
doc="--arch lstm_doc_lm_small --doc-components 0,0,1,3 --lr 20"
case "$variant" in
    plain) model="$doc" ;;
    partial_shuffle) model="$doc --partial-shuffle" ;;
    weight_norm) model="$doc --weight-norm 0.1 --weight-norm-target 2" ;;
    mogrifier) model="$doc --mogrifier-rounds 5 --mogrifier-rank 21" ;;
    mos) model="--arch lstm_mos_lm_small --doc-components 0,0,0,4 --lr 20" ;;
    one_softmax) model="--arch lstm_awd_lm_small --lr 30" ;;
    *) echo "expected plain, partial_shuffle, weight_norm, mogrifier, mos or one_softmax; got $variant" >&2; exit 1 ;;
esac
fairseq-train "$data" --user-dir fairseq_doc \
    --task bptt_language_modeling $model --matmul-precision bfloat16 \
    --criterion doc_cross_entropy --doc-balance published --doc-lambda 0.001 --ar-alpha 2 --tar-beta 1 \
    --optimizer nt_asgd --lr-scheduler nt_asgd --weight-decay 1.2e-6 --clip-norm 0.25 \
    --batch-size 12 --batch-size-valid 10 --max-epoch 3 --seed "$seed" --num-workers 0 --distributed-world-size 1 \
    --no-epoch-checkpoints --save-dir "$folder/$variant-$seed" --log-format simple --log-interval 200 "$@"
