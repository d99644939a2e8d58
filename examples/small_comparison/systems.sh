# The systems that are compared, to be sourced. Embedding and components are 100 wide; the widths of the layers give each
# system 1.60M parameters. They share one learning rate and one set of dropout rates, as in the paper's Table 6. The initial
# ranges are those of README.md's first table; INIT_RANGE sets one for all. projected is one softmax of a component vector,
# with W_1 but without a mixture. SCHEDULE=one_cycle trains by one cycle of the learning rate instead of averaging.
mixture="--arch lstm_doc_lm --init-range ${INIT_RANGE:-0.3} --doc-balance published --doc-lambda 0.001"
doc2="$mixture --layer-dims 166,166,120 --doc-components 0,0,1,3"
systems=(
    "softmax=--arch lstm_awd_lm_ptb --init-range ${INIT_RANGE:-0.6} --layer-dims 183,183,100"
    "projected=$mixture --layer-dims 174,174,120 --doc-components 0,0,0,1"
    "mos=$mixture --layer-dims 167,167,120 --doc-components 0,0,0,4"
    "doc2=$doc2"
    "doc1=$mixture --layer-dims 166,166,120 --doc-components 0,1,0,3"
)
# Nine epochs are 27 checks of 277 updates, 7,479 in all: a third of the text between two checks.
case "${SCHEDULE:=averaged}" in
averaged)
    schedule=(--optimizer averaged_adam --adam-betas "(0.0,0.999)"
        --lr-scheduler plateau --lr-patience 1000 --average-at 14 --max-checks 27) ;;
one_cycle)
    schedule=(--optimizer adam --adam-betas "(0.9,0.99)" --lr-scheduler polynomial_decay
        --warmup-updates 2243 --total-num-update 7479 --max-update 7479) ;;
*) echo "expected SCHEDULE averaged or one_cycle; got $SCHEDULE" >&2; exit 2 ;;
esac

# compare DATA DIR SYSTEM... [options of fairseq-doc compare] [-- options of fairseq-train]: trains, or resumes.
compare() {
    local data="$1" folder="$2" own=()
    shift 2
    while [ $# -gt 0 ] && [ "$1" != -- ]; do own+=("$1"); shift; done
    [ $# = 0 ] || shift
    fairseq-doc compare --dir "$folder" "${own[@]}" -- \
        fairseq-train "$data" --user-dir fairseq_doc --task bptt_language_modeling --decoder-embed-dim 100 \
        --embed-dropout 0.02 --input-dropout 0.08 --hidden-dropout 0.045 --output-dropout 0.08 \
        --component-dropout 0.12 --weight-dropout 0.1 \
        --criterion doc_cross_entropy --ar-alpha 2 --tar-beta 1 --gradient-sampling 0.01 \
        "${schedule[@]}" --adam-eps 1e-9 --lr 0.01 --clip-norm 1 --updates-per-epoch 277 \
        --batch-size 32 --bptt 35 --batch-size-valid 32 --eval-window 4000 --best-checkpoint-metric nll_loss \
        --matmul-precision bfloat16 --num-workers 0 --distributed-world-size 1 --no-epoch-checkpoints \
        --log-format simple --log-interval 277 "$@"
}
