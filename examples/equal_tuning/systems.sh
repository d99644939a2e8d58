# The systems that are compared, to be sourced: each has 1M parameters.

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
