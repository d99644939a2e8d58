#!/usr/bin/env bash
# Go on from the three seeds of a system's best settings with NT-ASGD, until averaging brings no more:
#     examples/equal_tuning/average.sh SYSTEM DATA STUDIES
# after tune.sh with the same arguments. A second call resumes. Further options go to fairseq-train. Five checks a pass
# over the text: averaging starts after the first that is worse than an earlier one; four without a new best end it, or
# 20 checks. Another call with --max-epoch 400 goes on where the 20 checks ended it.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
source "$here/systems.sh"
system="$1" data="$2" studies="$3"
shift 3
model=$(model_of "$system")
found=$(seeds_of "$system" "$studies")
mapfile -t folders <<<"$found"
# Dropouts and the embedding's width. The learning rate and the penalty were tuned for Adam.
settings=$(python - "$studies/$system/report/report.json" <<'PYTHON'
import json, sys
settings = json.load(open(sys.argv[1]))["best"]["settings"]
print(*(f"--{name} {value}" for name, value in settings.items() if name not in ("lr", "l2")))
PYTHON
)
for folder in "${folders[@]}"; do
    seed="${folder##*-seed}"
    averaged=$(average_of "$folder")
    # What it was done with; other options go on from there.
    [ -e "$averaged/done" ] && [ "$(cat "$averaged/done")" = "$*" ] && continue
    mkdir -p "$averaged"
    fairseq-train "$data" --user-dir fairseq_doc $model $settings \
        --finetune-from-model "$folder/checkpoints/checkpoint_best.pt" \
        --criterion doc_cross_entropy --optimizer nt_asgd --lr-scheduler nt_asgd --nonmono 0 \
        --lr 5 --clip-norm 0.25 --weight-decay 1.2e-6 --batch-size 32 --bptt 35 --updates-per-epoch 166 \
        --max-epoch 20 --patience 4 \
        --best-checkpoint-metric nll_loss --batch-size-valid 32 --eval-window 4000 \
        --no-epoch-checkpoints --num-workers 0 --seed "$seed" --log-format simple --log-interval 200 \
        --save-dir "$averaged" "$@"
    echo "$*" > "$averaged/done"
done
