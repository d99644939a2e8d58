#!/usr/bin/env bash
# Train one of the compared language models with a seed, to its end:
#     examples/converged/language_model.sh SYSTEM SEED DATA RUNS [options of fairseq-train]
# SYSTEM: see models.sh; DATA: the folder of fairseq-doc prepare-lm ptb; RUNS: a folder for RUNS/SYSTEM-SEED. A second
# call resumes. The systems have 1.60M parameters, one learning rate and one set of dropouts, as in the paper's Table 6.
set -euo pipefail
source "$(dirname "$0")/models.sh"
system="$1" seed="$2" data="$3" runs="$4"
shift 4
model=$(model_of "$system")
folder="$runs/$system-$seed"
mkdir -p "$folder"
fairseq-train "$data" --user-dir fairseq_doc --task bptt_language_modeling $model \
    --embed-dropout 0.04 --input-dropout 0.16 --hidden-dropout 0.09 --output-dropout 0.16 --component-dropout 0.24 \
    --weight-dropout 0.2 \
    --criterion doc_cross_entropy --ar-alpha 2 --tar-beta 1 --gradient-sampling 0.01 \
    --optimizer nt_asgd --lr-scheduler nt_asgd --lr 20 --nonmono 5 --weight-decay 1.2e-6 --clip-norm 0.25 \
    --batch-size 12 --batch-size-valid 10 --max-epoch 60 --seed "$seed" \
    --matmul-precision bfloat16 --num-workers 0 --distributed-world-size 1 --no-epoch-checkpoints \
    --log-format simple --log-interval 500 --save-dir "$folder" "$@" 2>&1 | tee -a "$folder/log.txt"
