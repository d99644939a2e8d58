#!/usr/bin/env bash
# Run set-up, quick start and tests on other machines, and write the table of docs/experiments/compatibility.md.
#
#     scripts/matrix.sh [NAME...]     # all rows below, or these
#
# A machine is Debian in a folder (debootstrap, chroot), so the script must run as root. FOLDER is where machines are
# created (default: /var/tmp/matrix); TESTS is what to test (default: tests). A row takes about a quarter of an hour on
# two cores and 9 GB of disk, which is freed at the end; its log remains as FOLDER/NAME.log. The last commit is tested.
set -euo pipefail
cd "$(dirname "$0")/.."

# name, Debian's suite, and the settings of scripts/setup.sh
machines='
debian12    bookworm
debian13    trixie
lowest      bookworm  CONSTRAINTS=constraints-lowest.txt
newest      trixie    CONSTRAINTS=
ve-fairseq  bookworm  FAIRSEQ=ve-fairseq
debian11    bullseye
sid         sid'

folder=${FOLDER:-/var/tmp/matrix}
tests=${TESTS:-tests}
page=docs/experiments/compatibility.md
packages=python3-venv,python3-dev,g++,git,ca-certificates

fail() { echo "matrix: $*" >&2; exit 1; }

[ "$(id -u)" = 0 ] || fail "run this as root, which chroot needs"
command -v debootstrap >/dev/null || fail "expected debootstrap; install it"
mkdir -p "$folder/pip"

# Run a command in the checkout of a machine. pip gets this machine's variables (PIP_*), and a cache that all
# machines share.
inside() { # root, settings, command
    local settings
    mapfile -t settings < <(env | grep '^PIP_' | grep -v '^PIP_FIND_LINKS' || true) # a folder out of reach
    unshare --mount bash -euc '
        mount --rbind /dev "$0/dev"
        mount -t proc proc "$0/proc"
        mount --bind "$1" "$0/root/.cache/pip"
        shift
        exec chroot "$0" "$@"' \
        "$1" "$folder/pip" /usr/bin/env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        "${settings[@]}" $2 bash -c "cd /srv/fairseq_doc && $3"
}

version_of() { # name, what fairseq-doc --version printed
    sed -n "s/^$1: \([^,;]*\).*/\1/p" <<<"$2"
}

run_row() { # name, suite, settings
    local name=$1 suite=$2 settings=${3:-} root=$folder/$1 log=$folder/$1.log
    local system line cells set_up='' quick_start='' suite_result='' versions=''
    # An interrupted debootstrap leaves /proc mounted, which must not be removed.
    umount "$root/proc" 2>/dev/null || true
    rm -rf --one-file-system "$root" "$log"
    echo "matrix: $name: creating the machine"
    debootstrap --variant=minbase --include="$packages" "$suite" "$root" >"$log" 2>&1 ||
        fail "$name: debootstrap has failed, see $log"
    cp -L /etc/resolv.conf "$root/etc/resolv.conf"
    echo "127.0.0.1 localhost $(hostname)" >"$root/etc/hosts"
    cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
    mkdir -p "$root/root/.cache/pip"
    git clone --quiet . "$root/srv/fairseq_doc"
    system=$(. "$root/etc/os-release" && echo "$PRETTY_NAME")

    echo "matrix: $name: set-up"
    if inside "$root" "$settings" ./scripts/setup.sh >>"$log" 2>&1; then
        set_up=$(sed -n 's/^setup: done after \(.*\)/\1/p' "$log")
        versions=$(inside "$root" "$settings" '.venv/bin/fairseq-doc --version') || true
        echo "matrix: $name: quick start"
        inside "$root" "$settings" ./scripts/quickstart.sh >>"$log" 2>&1 || true
        quick_start=$(tail -n 1 "$log" | sed 's/^quickstart: //')
        echo "matrix: $name: tests"
        inside "$root" "$settings" "./scripts/test.sh $tests" >>"$log" 2>&1 || true
        suite_result=$(tail -n 1 "$log" | tr -d =)
    else
        set_up=$(grep -E '^(setup|install_fairseq|ERROR)' "$log" | tail -n 1)
        versions="Python: $(inside "$root" '' 'python3 --version' | cut -d' ' -f2)" || true
    fi
    rm -rf --one-file-system "$root"
    cells=("$name" "$system" "$(version_of Python "$versions")" "$(version_of torch "$versions")"
        "$(version_of numpy "$versions")" "$(version_of fairseq "$versions")" "$settings"
        "$set_up" "$quick_start" "$suite_result" "$(date -u +%F)" "$(git rev-parse --short HEAD)")
    line=$(printf '| %s ' "${cells[@]//|//}")
    sed -i -e "/^| $name |/d" -e "/^<!-- end of the table/i ${line//\\//} |" "$page"
    echo "matrix: $name: $set_up; $quick_start; $suite_result"
}

wanted=("$@")
[ $# != 0 ] || mapfile -t wanted < <(awk 'NF { print $1 }' <<<"$machines")
for name in "${wanted[@]}"; do
    row=$(awk -v name="$name" '$1 == name' <<<"$machines")
    [ -n "$row" ] || fail "expected a name of the rows in $0; got $name"
    run_row $row
done
