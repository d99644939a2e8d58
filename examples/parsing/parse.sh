#!/usr/bin/env bash
# The encoder-decoder's n-best lists of the development and test sentences: OUT/dev.nbest, OUT/test.nbest. MODEL
# is its checkpoint, DATA the folder that scripts/prepare_parsing.sh --pairs wrote; OUT is the checkpoint's
# folder unless set, and holds no lists yet; both lists appear once both are whole. Further options go to
# fairseq-generate.
set -euo pipefail
data=${DATA:-data-bin/wsj}
model=${MODEL:-checkpoints/wsj/parser/checkpoint_best.pt}
out=${OUT:-$(dirname "${model%%:*}")}
scripts=$(dirname "$0")/../../scripts
IFS=: read -ra checkpoints <<<"$model"
for file in "${checkpoints[@]}"; do
    [ -f "$file" ] || { echo "parse: expected a checkpoint, got no file $file" >&2; exit 1; }
done
for name in dev test; do
    [ ! -e "$out/$name.nbest" ] || {
        echo "parse: $out/$name.nbest exists; remove it, or name another folder: OUT=..." >&2
        exit 1
    }
done
mkdir -p "$out"
for pair in valid:dev test:test; do
    split=${pair%:*} name=${pair#*:}
    fairseq-generate "$data/pairs" --user-dir "${USER_DIR:-fairseq_doc}" --task translation \
        --source-lang words --target-lang symbols --path "$model" --gen-subset "$split" \
        --beam 10 --nbest 10 --max-len-a 4 --max-len-b 20 --batch-size 32 --num-workers 0 "$@" \
        >"$out/$name.out"
    python "$scripts/collect_parses.py" "$out/$name.out" --sentences "$data/trees/$split.mrg" \
        --output "$out/$name.nbest.part" --overwrite
    fairseq-doc evalb "$data/trees/$split.mrg" "$out/$name.nbest.part" --strip-root
done
for name in dev test; do mv "$out/$name.nbest.part" "$out/$name.nbest"; done
