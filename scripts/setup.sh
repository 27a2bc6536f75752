#!/usr/bin/env bash
# Makes a bare Debian or Ubuntu machine ready to build Millstream: system packages (apt, as root or with
# sudo; without either it prints the line to run and stops) and pinned wheels in a local environment.
# Running it again costs nothing when nothing changed.
#
#   MILLSTREAM_ENV  where the environment goes (default: .venv in the repository)
#   PYTHON          the interpreter to use (default: python3, 3.11 or later)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
env_dir=${MILLSTREAM_ENV:-$root/.venv}
torch_version=2.15.0
cuda_wheels=("nvidia-cuda-runtime==13.2.*" "nvidia-cuda-cupti==13.2.*")
packages=(g++ make cmake ninja-build ccache mold git ca-certificates python3 python3-venv tzdata
  libtomlplusplus-dev libcli11-dev nlohmann-json3-dev libfmt-dev libxxhash-dev
  libgtest-dev libbenchmark-dev clang-format-14 clang-19 llvm-19-dev)

say() { printf 'setup: %s\n' "$*" >&2; }

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
if ((${#missing[@]})); then
  install=(apt-get install -y --no-install-recommends "${missing[@]}")
  if [ "$(id -u)" = 0 ]; then
    as_root=(env DEBIAN_FRONTEND=noninteractive)
  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root=(sudo env DEBIAN_FRONTEND=noninteractive)
  else
    say "packages are missing and this user can't install them. Run this line as root, then try again:"
    printf '  apt-get update && %s\n' "${install[*]}" >&2
    exit 1
  fi
  say "installing ${missing[*]}"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" "${install[@]}" >/dev/null
fi

python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  { say "$("$python" --version) is too old: torch $torch_version needs Python 3.11 or later; name one with PYTHON=…"; exit 1; }

has_gpu() { command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q GPU; }
# A torch that is already in the active Python is used when its C++ interface is one that we build with.
active_torch=$("$python" - <<'PY' 2>/dev/null || true
import importlib.util, os, re
spec = importlib.util.find_spec("torch")
folder = spec and os.path.dirname(spec.origin)
if folder and os.path.exists(folder + "/lib/libtorch_cpu.so"):
    version = re.search(r"__version__ = '(\d+)\.(\d+)", open(folder + "/version.py").read())
    if version and (2, 11) <= tuple(map(int, version.groups())) <= (2, 15):
        print(folder)
PY
)

kind=slim
if [ -n "$active_torch" ]; then kind="active:$active_torch"; elif has_gpu; then kind=cuda; fi
stamp="$env_dir/.setup-done"
want="$kind $("$python" --version) $(sha256sum "$root/scripts/setup.sh" "$root/scripts/requirements.txt" | sha256sum | cut -d' ' -f1)"
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ]; then exit 0; fi

say "making the environment (torch: $kind)"
[ -x "$env_dir/bin/python" ] || "$python" -m venv "$env_dir"
pip=("$env_dir/bin/python" -m pip --disable-pip-version-check -q install)
"${pip[@]}" -r "$root/scripts/requirements.txt"
case $kind in
  active:*) ;;
  cuda) "${pip[@]}" "torch==$torch_version" ;;
  slim) "${pip[@]}" --no-deps "torch==$torch_version" "${cuda_wheels[@]}" ;;
esac
torch_dir=${active_torch:-$("$env_dir/bin/python" -c 'import importlib.util as u, os; print(os.path.dirname(u.find_spec("torch").origin))')}
printf '%s\n' "$torch_dir" > "$env_dir/torch_dir"
printf '%s\n' "$want" > "$stamp"
say "ready: $env_dir"
