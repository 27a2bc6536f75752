"""Checks that every header of src/ compiles alone and starts with #pragma once. Usage: check_headers.py BUILD_DIR
Headers of one folder that see no torch are compiled together, each in a file of its own, with the flags of a
source of that folder. Results are kept by content, so that an unchanged header costs nothing the next time."""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parent.parent
build = pathlib.Path(sys.argv[1]).resolve()
commands = json.loads((build / "compile_commands.json").read_text())
headers = sorted((root / "src").rglob("*.h"))
state_file = build / "headers-checked.json"
state = json.loads(state_file.read_text()) if state_file.exists() else {}
everything = hashlib.sha256(b"".join(h.read_bytes() for h in headers)).hexdigest()


def flags(folder):
    """The compiler and flags of the sources of `folder`, without precompiled headers, inputs and outputs. A folder of
    two targets (train, with and without torch) has two; the last, with the most include folders, is taken."""
    found = []
    for entry in commands:
        source = pathlib.Path(entry["file"])
        if source.parent == root / "src" / folder and source.suffix == ".cc" and not source.stem.endswith("_test"):
            words = shlex.split(entry["command"])
            out, skip = [], False
            for word in words[words.index(next(w for w in words if w.endswith(("c++", "g++")))):]:
                if skip:
                    skip = False
                elif word in ("-o", "-MF", "-MT", "-MQ", "-c", "-include"):
                    skip = True
                elif word not in ("-MD", "-Winvalid-pch") and not word.startswith("-O"):
                    out.append(word)
            found.append(out)
    return max(found, key=len, default=None)


def check(header):
    first = [l for l in header.read_text().splitlines() if l.strip()][:1]
    if first != ["#pragma once"]:
        return f"{header.relative_to(root)}: does not begin with #pragma once"
    if header.name == "precompiled.h" or header.name.endswith("_pch.h"):
        return None
    command = flags(header.parent.relative_to(root / "src").parts[0])
    if command is None:
        return f"{header.relative_to(root)}: its folder has no source"
    done = subprocess.run(command + ["-O0", "-fsyntax-only", "-x", "c++", "-"], cwd=build, text=True, capture_output=True,
                          input=f'#include "{header.relative_to(root / "src")}"\n')
    return None if done.returncode == 0 else f"{header.relative_to(root)}: does not compile alone:\n{done.stderr[:2000]}"


if state.get("passed") == everything:
    print("headers: unchanged since they passed")
    sys.exit(0)
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    faults = [f for f in pool.map(check, headers) if f]
print("\n".join(faults) or f"headers: all {len(headers)} compile alone")
if not faults:
    state_file.write_text(json.dumps({"passed": everything}))
sys.exit(bool(faults))
