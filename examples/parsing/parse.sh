#!/usr/bin/env bash
# Write the encoder-decoder's n-best lists for the development and test sentences: OUT/dev.nbest, OUT/test.nbest.
#   MODEL  its checkpoint, or several for an ensemble: a.pt:b.pt
#   DATA   folder that fairseq-doc prepare-parsing --pairs wrote
#   OUT    folder for the lists (default: that of the checkpoint)
# The lists are written when both are complete. Further options go to fairseq-generate.
set -euo pipefail
fail() { echo "parse: $1" >&2; exit 1; }

data=${DATA:-data-bin/wsj}
model=${MODEL:-checkpoints/wsj/parser/checkpoint_best.pt}
out=${OUT:-$(dirname "${model%%:*}")}
IFS=: read -ra checkpoints <<<"$model"
for file in "${checkpoints[@]}"; do [ -f "$file" ] || fail "expected a checkpoint, got no file $file"; done
for list in "$out/dev.nbest" "$out/test.nbest"; do
    [ ! -e "$list" ] || fail "$list exists; remove it, or name another folder: OUT=..."
done

mkdir -p "$out"
for pair in valid:dev test:test; do
    split=${pair%:*} name=${pair#*:}
    fairseq-generate "$data/pairs" --user-dir fairseq_doc --task translation \
        --source-lang words --target-lang symbols --path "$model" --gen-subset "$split" \
        --beam 10 --nbest 10 --max-len-a 4 --max-len-b 20 --batch-size 32 --num-workers 0 "$@" \
        >"$out/$name.out"
    fairseq-doc collect-parses "$out/$name.out" --sentences "$data/trees/$split.mrg" \
        --output "$out/$name.nbest.part" --overwrite
    fairseq-doc evalb "$data/trees/$split.mrg" "$out/$name.nbest.part" --strip-root
done
for name in dev test; do mv "$out/$name.nbest.part" "$out/$name.nbest"; done
