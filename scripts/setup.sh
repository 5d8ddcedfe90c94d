#!/usr/bin/env bash
# Installs what the build needs: Debian packages that are missing, and the
# project's virtual environment .venv. Does nothing when all of it is there.
#   scripts/setup.sh [--lint | --test]     also the linters; what only tests need
#   PYTHON=/path/python           takes torch from that interpreter, makes no .venv
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { printf 'setup: %s\n' "$*" >&2; exit 2; }

# Runs a command with its output in build/setup.log; shows the log's end if it fails.
logged() {
  mkdir -p build
  if ! "$@" > build/setup.log 2>&1; then
    tail -n 15 build/setup.log >&2
    fail "failed: $* (the whole output is in build/setup.log)"
  fi
}

packages=(g++ cmake ninja-build ccache perl perl-doc libtomlplusplus-dev libcli11-dev
  nlohmann-json3-dev libspdlog-dev libgtest-dev libbenchmark-dev libpng-dev libssl-dev librapidcheck-dev
  libglpk-dev liblemon-dev)
[ "${1:-}" = --lint ] && packages+=(clang-format clang-tidy-16)  # clang-tidy 14 fails on std::ranges
# Tests look at the report in a browser, fuzz with clang and compare its plans with g++'s.
[ "${1:-}" = --test ] && packages+=(chromium fonts-dejavu-core clang libclang-rt-14-dev)

system=$( . /etc/os-release 2> /dev/null && printf '%s %s %s' "${ID:-}" "${VERSION_ID:-99}" "${PRETTY_NAME:-}" || true)
read -r id version name <<< "${system:-unknown 0 an unknown system}"
if [ "$id" != debian ] || [ "${version%%.*}" -lt 12 ]; then
  fail "this is $name: Debian 12 or newer is needed, with the packages ${packages[*]} and Python 3.11"
fi
for tool in dpkg-query apt-get; do
  command -v "$tool" > /dev/null || fail "$tool is missing: it must be on PATH to find and install the packages ${packages[*]}"
done

python=${PYTHON:-$(command -v python3 || true)}
if [ -z "$python" ]; then
  python=/usr/bin/python3
  packages+=(python3 python3-venv)
elif ! command -v "$python" > /dev/null; then
  fail "PYTHON=$python: there is no such program; give the path of a Python 3.11 or newer that has torch"
elif [ -z "${PYTHON:-}" ] && ! "$python" -c 'import ensurepip' 2> /dev/null; then
  packages+=(python3-venv)  # Debian's python3 has it in a package of its own
fi

installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${packages[@]}" 2> /dev/null | sed -n 's/^installed //p' || true)
missing=$(comm -23 <(printf '%s\n' "${packages[@]}" | sort) <(sort <<< "$installed") | xargs)
if [ -n "$missing" ]; then
  root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo > /dev/null || fail "neither root nor sudo, and these packages are missing: $missing"
    if ! sudo -n true 2> /dev/null && ! { [ -t 0 ] && sudo -v; }; then
      fail "sudo does not let this user in, and these packages are missing: $missing"
    fi
    root=(sudo)
  fi
  echo "setup: installing $missing"
  logged "${root[@]}" apt-get update
  # shellcheck disable=SC2086
  logged "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
fi

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  fail "$python is $("$python" --version 2>&1): Python 3.11 or newer is needed; put one first on PATH or give PYTHON=/path/python"

if [ -n "${PYTHON:-}" ]; then
  "$python" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)' ||
    fail "PYTHON=$python has no torch: install $(grep '^torch==' python/requirements.txt) there, or leave PYTHON out"
  exit 0
fi

# The stamp holds the requirements that .venv was made from.
if ! cmp -s python/requirements.txt .venv/requirements.txt || [ ! -x .venv/bin/python ]; then
  echo "setup: making .venv with $(grep -v '^#' python/requirements.txt | xargs)"
  logged "$python" -m venv --clear .venv
  logged .venv/bin/python -m pip install -r python/requirements.txt
  cp python/requirements.txt .venv/requirements.txt
fi
if [ "${1:-}" = --test ] && ! cmp -s python/requirements-test.txt .venv/requirements-test.txt; then
  echo "setup: adding $(grep -v '^#' python/requirements-test.txt | xargs) to .venv"
  logged .venv/bin/python -m pip install -r python/requirements-test.txt
  cp python/requirements-test.txt .venv/requirements-test.txt
fi
# So that .venv/bin/python -m lrmoe.tensorboard works from anywhere.
for packages_folder in .venv/lib/python3*/site-packages; do
  printf '%s\n' "$PWD/python" > "$packages_folder/lrmoe.pth"
done
