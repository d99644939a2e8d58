# To be sourced: the systems to compare, of width 128 with two layers per side, and how they are trained.

# model_of SYSTEM: its options of fairseq-train.
model_of() {
    local size=128 ours
    ours="--arch lstm_luong_doc --encoder-embed-dim $size --decoder-embed-dim $size --hidden-size $size"
    ours="$ours --init-range 0.3 --criterion doc_cross_entropy --matmul-precision bfloat16"
    case "$1" in
        fairseq) echo --arch lstm_luong_wmt_en_de --encoder-bidirectional --encoder-layers 2 --decoder-layers 2 \
            --encoder-embed-dim $size --encoder-hidden-size $size --decoder-embed-dim $size \
            --decoder-hidden-size $size --decoder-out-embed-dim $size --criterion label_smoothed_cross_entropy ;;
        softmax) echo "$ours --plain-output --doc-components 0,0,0,1" ;;
        linear) echo "$ours --doc-activation linear --doc-components 0,0,0,1" ;;
        i3) echo "$ours --doc-activation linear --doc-components 0,0,0,2" ;;
        i2i3) echo "$ours --doc-activation linear --doc-components 0,0,2,2" ;;
        *) echo "expected fairseq, softmax, linear, i3 or i2i3; got $1" >&2; return 1 ;;
    esac
}

# updates N: N epochs of UPDATES (907) updates; the learning rate rises for 500 updates, then falls linearly to zero.
updates() { echo "--max-update $((${UPDATES:-907} * $1)) --total-num-update $((${UPDATES:-907} * $1))"; }

training="--user-dir fairseq_doc --task translation --sentence-avg --optimizer adam --adam-betas (0.9,0.98)
    --lr-scheduler polynomial_decay --warmup-updates 500 --batch-size 32 --best-checkpoint-metric nll_loss
    --num-workers 0 --distributed-world-size 1 --no-epoch-checkpoints --log-format simple --log-interval 907"
