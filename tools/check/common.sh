# What the checks of this folder share with each other and with tools/test; each begins by sourcing it. A check installs
# what it needs (Debian packages, Rust toolchains), and where that fails is skipped, which is counted.
set -euo pipefail
CHECK="$(realpath "$0")"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export CHECK="${CHECK#"$PWD/"}"

# What is built on top where it can be: ranks by MPI. The same for clippy and all tests, which then share what they build.
features=()
if command -v mpicc >/dev/null && /sbin/ldconfig -p 2>/dev/null | grep -q 'libclang[-.0-9]*so'; then
    features=(--features bregman-cli/mpi)
fi

# count_skips: what is skipped from here on is said in the last lines, unless a caller such as `.ci/run` counts already.
count_skips() {
    [ -z "${BREGMAN_SKIPS:-}" ] || return 0
    BREGMAN_SKIPS="$(mktemp)"
    export BREGMAN_SKIPS
    trap 'tools/skip/summary "$BREGMAN_SKIPS"; rm "$BREGMAN_SKIPS"' EXIT
}

# skip NEED WHY: this check ends here, as a recorded skip or, if BREGMAN_REQUIRE names the need, as a failure.
skip() {
    tools/skip/skip "$@"
    exit
}

# debian PROGRAM PACKAGE...: whether the program is there, perhaps after installing the packages.
debian() {
    command -v "$1" >/dev/null && return
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return
    local apt="apt-get -qq -o DPkg::Lock::Timeout=300"
    $apt install -y --no-install-recommends "${@:2}" >/dev/null 2>&1 ||
        { $apt update >/dev/null && $apt install -y --no-install-recommends "${@:2}" >/dev/null; } || return
    command -v "$1" >/dev/null
}

# rustup_has ARGUMENTS...: whether rustup is there and does that.
rustup_has() {
    command -v rustup >/dev/null && rustup "$@" >/dev/null 2>&1
}
