# What the checks of this folder share; each begins with `source "$(dirname "$0")/common.sh"`. A check installs what it
# needs (Debian packages, Rust toolchains), and where that fails is skipped, which `.ci/run` counts.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export CHECK="tools/check/$(basename "$0")"

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
