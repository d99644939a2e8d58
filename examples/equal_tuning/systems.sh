# The systems that are compared, to be sourced: each has 1M parameters. And where their models are.

# model_of SYSTEM: its options of fairseq-train.
model_of() {
    local model="--task bptt_language_modeling --arch lstm_melis_lm --num-params 1000000 --matmul-precision bfloat16"
    case "$1" in
        lstm1) echo "$model --layers 1" ;;
        lstm2) echo "$model --layers 2" ;;
        rhn5) echo "$model --cell rhn --rhn-depth 5" ;;
        nas1) echo "$model --cell nas" ;;
        mos3) echo "$model --layers 2 --doc-components 0,0,0,3" ;;
        doc3) echo "$model --layers 2 --doc-components 0,1,0,2" ;;
        *) echo "expected lstm1, lstm2, rhn5, nas1, mos3 or doc3; got $1" >&2; return 1 ;;
    esac
}

# seeds_of SYSTEM STUDIES: the folders of its best settings' trainings, one a line, each with a seed of its own.
seeds_of() {
    local report="$2/$1/report/report.json" trial folder found=0
    [ -e "$report" ] || { echo "expected $report of tune.sh $1; got none: run that first" >&2; return 1; }
    trial=$(python -c 'import json, sys; print("%04d" % json.load(open(sys.argv[1]))["best"]["trial"])' "$report")
    for folder in "$2/$1/rerun-$trial-seed"*; do
        grep -qs "done training in" "$folder/log.txt" || continue
        echo "$folder"
        found=1
    done
    [ $found = 1 ] || { echo "expected finished $2/$1/rerun-$trial-seed* of tune.sh $1; got none" >&2; return 1; }
}

# average_of FOLDER: where average.sh goes on from the training of such a folder.
average_of() { echo "${1%/rerun-*}/averaged-${1##*/rerun-}"; }
