#!/usr/bin/env bash
# Installs what a build needs on Debian 12: packages that are missing, and the torch and pyarrow wheels in .deps/wheels.
# Repeatable; with everything in place it touches neither the system nor the network.
#   tools/install.sh [--sanitizers]     --sanitizers adds Clang with its sanitizers and libFuzzer
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(
  g++ cmake ninja-build ccache mold pkg-config git ca-certificates python3 python3-venv
  libcli11-dev libyaml-cpp-dev nlohmann-json3-dev libfmt-dev libspdlog-dev libxxhash-dev
  libpcre2-dev libutf8proc-dev libsentencepiece-dev libsimdjson-dev libzstd-dev zlib1g-dev libtbb-dev
  libgloo-dev libgtest-dev libgmock-dev libbenchmark-dev openmpi-bin iproute2
)
for argument in "$@"; do
  case "$argument" in
    --sanitizers) packages+=(clang-14 libclang-rt-14-dev llvm-14 libomp-14-dev) ;;
    *) echo "usage: tools/install.sh [--sanitizers]" >&2; exit 2 ;;
  esac
done

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
if ((${#missing[@]})); then
  as_root=()
  if [[ $(id -u) != 0 ]]; then
    command -v sudo >/dev/null || { echo "Packages are missing, and there is neither root nor sudo: ${missing[*]}" >&2; exit 1; }
    as_root=(sudo)
  fi
  echo "Installing Debian packages: ${missing[*]}"
  "${as_root[@]}" apt-get update -q
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${missing[@]}"
fi

# name version, as in the wheel's dist-info folder; an asterisk matches any patch level
wheels=("torch 2.11.0" "nvidia-cuda-runtime 13.0.*" "nvidia-cuda-cupti 13.0.*" "pyarrow 21.0.0")
complete() {
  local wheel name version
  for wheel in "${wheels[@]}"; do
    read -r name version <<<"$wheel"
    compgen -G "$1/lib/python3*/site-packages/${name//-/_}-$version*.dist-info/RECORD" >/dev/null || return 1
  done
}
if ! complete .deps/wheels; then
  if [[ -L .deps/wheels ]]; then
    echo ".deps/wheels is a link to a folder without the right wheels (${wheels[*]}): remove the link, or complete the folder." >&2
    exit 1
  fi
  echo "Installing wheels: ${wheels[*]}"
  requirements=()
  for wheel in "${wheels[@]}"; do requirements+=("${wheel/ /==}"); done
  # Aside and renamed: an interrupted download leaves nothing that looks complete.
  rm -rf .deps/wheels.new
  mkdir -p .deps
  python3 -m venv .deps/wheels.new
  .deps/wheels.new/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --only-binary :all: --no-deps "${requirements[@]}"
  complete .deps/wheels.new || { echo "The wheels are not where they were expected in .deps/wheels.new." >&2; exit 1; }
  rm -rf .deps/wheels
  mv .deps/wheels.new .deps/wheels
fi
