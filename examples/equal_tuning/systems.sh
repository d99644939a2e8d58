# To be sourced: the systems to compare, each with 1M parameters, and how they are trained.

# model_of SYSTEM: its options of fairseq-train.
model_of() {
    local model="--arch lstm_melis_lm --num-params 1000000"
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

every_training="--user-dir fairseq_doc --task bptt_language_modeling --matmul-precision bfloat16
    --criterion doc_cross_entropy --batch-size 32 --bptt 35 --updates-per-epoch 166
    --best-checkpoint-metric nll_loss --batch-size-valid 32 --eval-window 4000
    --no-epoch-checkpoints --num-workers 0 --log-format simple --log-interval 166"
# Four epochs with 20 checks; the learning rate drops at check 16 at the latest.
tuned_training="$every_training --sentence-avg --optimizer adam --adam-betas (0.0,0.999) --adam-eps 1e-9
    --clip-norm 10 --lr-scheduler plateau --lr-patience 4 --drop-at 16 --max-checks 20 --stop-patience 6 --stop-ramp 8"
