#!/usr/bin/env bash
# Translate the test split with beam 5 and score it: RAW is the raw reference, a file of as many lines.
# SYSTEM is doc, i3 or plain, or MODEL names a checkpoint, or several for an ensemble: a.pt:b.pt. OUT
# is the output, a new file. Further options go to fairseq-generate.
set -euo pipefail
pair=${SRC:-en}-${TGT:-de}
runs=checkpoints/iwslt16.$pair
model=${MODEL:-$runs/${SYSTEM:-doc}/checkpoint_best.pt}
[ -n "${RAW:-}" ] || { echo "evaluate: expected RAW=reference, such as RAW=iwslt16/test.${TGT:-de}" >&2; exit 1; }
[ -f "$RAW" ] || { echo "evaluate: expected a reference, got no file $RAW" >&2; exit 1; }
IFS=: read -ra checkpoints <<<"$model"
for file in "${checkpoints[@]}"; do
    [ -f "$file" ] || { echo "evaluate: expected a checkpoint, got no file $file" >&2; exit 1; }
done
output=${OUT:-$(dirname "${model%%:*}")/generate-test.$pair.txt}
[ ! -e "$output" ] || { echo "evaluate: $output exists; remove it, or name another file: OUT=..." >&2; exit 1; }
fairseq-generate "${DATA:-data-bin/iwslt16.$pair}" --user-dir "${USER_DIR:-fairseq_doc}" \
    --task translation --source-lang "${SRC:-en}" --target-lang "${TGT:-de}" \
    --path "$model" --gen-subset test --beam 5 --batch-size 64 --num-workers 0 "$@" >"$output.part"
mv "$output.part" "$output"
python "$(dirname "$0")/../../scripts/score_bleu.py" "$output" --reference "$RAW" --lang "${TGT:-de}"
