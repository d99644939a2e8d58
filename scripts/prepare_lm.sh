#!/usr/bin/env bash
# Binarise a language-modelling corpus for --task bptt_language_modeling.
#
#     scripts/prepare_lm.sh ptb|wikitext2|text FOLDER [DESTDIR]
#
# FOLDER holds train.txt, valid.txt and test.txt, one sentence a line, tokens apart. ptb and wikitext2
# are checked against the published counts (PTB: one less each than the paper's Table 1 prints). DESTDIR
# is data-bin/NAME by default and must not exist yet.
set -euo pipefail

fail() { echo "prepare_lm: $*" >&2; exit 1; }

[ $# -ge 2 ] || fail "expected: $0 ptb|wikitext2|text FOLDER [DESTDIR]; got $# arguments"
root=$(cd "$(dirname "$0")/.." && pwd)
name=$1
folder=$2
dest=${3:-$root/data-bin/$name}
dest=${dest%/}
preprocess=fairseq-preprocess
[ -x "$root/.venv/bin/$preprocess" ] && preprocess=$root/.venv/bin/$preprocess

case $name in  # tokens with one end mark a line: train, valid, test; then types with the end mark
    ptb) counts=(929589 73760 82430) types=10000 ;;
    wikitext2) counts=(2088628 217646 245569) types=33278 ;;
    text) counts=() types= ;;
    *) fail "expected ptb, wikitext2 or text; got $name" ;;
esac
[ ! -e "$dest" ] || fail "$dest exists; remove it, or name another folder"

splits=(train valid test)
read_tokens=()
for i in 0 1 2; do
    file=$folder/${splits[$i]}.txt
    [ -s "$file" ] || fail "expected text in $file; got $([ -e "$file" ] && echo an empty file || echo no file)"
    tokens=$(awk '{ n += NF + 1 } END { print n }' "$file")
    echo "prepare_lm: $file: $tokens tokens with one end mark a line"
    read_tokens[i]=$tokens
    if [ -n "$types" ] && [ "$tokens" != "${counts[$i]}" ]; then
        fail "$file: expected ${counts[$i]} tokens, as published; got $tokens"
    fi
done

mkdir -p "$(dirname "$dest")"
rm -rf "$dest.part"  # of an interrupted run
trap 'rm -rf "$dest.part"' EXIT  # nothing half-written stays behind
"$preprocess" --only-source --trainpref "$folder/train.txt" --validpref "$folder/valid.txt" \
    --testpref "$folder/test.txt" --destdir "$dest.part" --padding-factor 1 --workers 2 \
    >"$dest.log" 2>&1 || { tail -n 3 "$dest.log" >&2; fail "fairseq-preprocess failed; see $dest.log"; }
for i in 0 1 2; do # what was binarised is what was read
    written=$(sed -nE "s|.*/${splits[$i]}\.txt: [0-9]+ sents, ([0-9]+) tokens.*|\1|p" "$dest.log")
    [ "$written" = "${read_tokens[$i]}" ] ||
        fail "${splits[$i]}: expected ${read_tokens[$i]} tokens binarised, got $written; do words hold" \
            "blanks that are not ASCII? See $dest.log"
done
grep -E 'types|sents' "$dest.log" | sed 's/.*| *//' | sort -u
# dict.txt leaves out fairseq's own <s>, <pad>, </s> and <unk>; the text's <unk> is one of them.
words=$(($(wc -l <"$dest.part/dict.txt") + 2))
if [ -n "$types" ] && [ "$words" != "$types" ]; then
    fail "expected $types word types with the end mark, as published; got $words"
fi
mv "$dest.part" "$dest"
mv "$dest.log" "$dest/prepare.log"
echo "prepare_lm: wrote $dest"
