#!/usr/bin/env bash
# Rerank n-best parses: tune the weight of the parser's own score on DEV, and use it on TEST.
#   DEV, TEST  n-best files, gzipped or not
#   MODEL      a checkpoint, or several for an ensemble: a.pt:b.pt
#   DATA       folder that fairseq-doc prepare-parsing wrote, with the gold trees
#   OUT        folder to write; use a new one for other lists
#   WEIGHTS    the weights that are tried (default: 0:5:0.05)
#   PRM        EVALB's parameter file
# Further options go to fairseq-doc rerank, such as --score-base 2. Root brackets are not counted.
set -euo pipefail
fail() { echo "rerank: $1" >&2; exit 1; }

data=${DATA:-data-bin/wsj}
model=${MODEL:-checkpoints/wsj/doc/checkpoint_best.pt}
out=${OUT:-$(dirname "${model%%:*}")/reranked}
for name in DEV TEST; do
    [ -f "${!name:-}" ] || fail "expected $name=LISTS, an n-best file, gzip or not; got ${!name:-none}"
done
scored=(--strip-root ${PRM:+--prm "$PRM"})

mkdir -p "$out"
fairseq-doc rerank "$data" "$DEV" --path "$model" --tune "$data/trees/valid.mrg" "${scored[@]}" \
    --weights "${WEIGHTS:-0:5:0.05}" --json "$@" >"$out/dev.json.part"
mv "$out/dev.json.part" "$out/dev.json"
weight=$(python -c '
import json, sys
result = json.load(open(sys.argv[1]))
print("rerank: tuned on {}: F1 of the parser {parser_f1:.2f}, the language model {lm_f1:.2f}, both {f1:.2f}, "
      "the best of each list {oracle_f1:.2f}".format(sys.argv[2], **result), file=sys.stderr)
print(result["weight"])' "$out/dev.json" "$DEV")
for at in 0 "$weight"; do # the language model alone, then with the parser's score
    fairseq-doc rerank "$data" "$TEST" --path "$model" --weight "$at" \
        --output "$out/test.best" --overwrite "${scored[@]}" "$@" >/dev/null
    echo "rerank: $TEST, weight $at:"
    fairseq-doc evalb "$data/trees/test.mrg" "$out/test.best" "${scored[@]}"
done
