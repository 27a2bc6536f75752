"""Checks the include directions that docs/architecture.md states: a folder of src/ includes only folders above
it, and each heavy dependency has one owner. Prints every offence; exits 1 where there is one."""
import pathlib
import re
import sys

LAYERS = ["base", "expr", "functions", "sql", "plan", "jit", "comm", "exec", "features", "loader", "train", "cli"]
OWNERS = [  # include prefix, folders that may use it
    (r"llvm/|llvm-c/", {"jit"}),
    (r"mpi\.h", {"comm"}),
    (r"torch/|ATen/|c10/", {"train"}),
    (r"parquet/", {"exec"}),
    (r"cuda", set()),
    (r"CLI/", {"cli"}),
    (r"toml\+\+/", {"cli"}),
]

root = pathlib.Path(__file__).resolve().parent.parent
offences = []
for path in sorted((root / "src").rglob("*")):
    if path.suffix not in (".h", ".cc"):
        continue
    layer = path.relative_to(root / "src").parts[0]
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if not match:
            continue
        where = f"{path.relative_to(root)}:{number}"
        name = match.group(2)
        if match.group(1) == '"':
            folder = name.split("/")[0]
            if "/" not in name or folder not in LAYERS:
                offences.append(f'{where}: "{name}" is not a path from src/')
            elif LAYERS.index(folder) > LAYERS.index(layer):
                offences.append(f"{where}: {layer} must not include {folder}")
            elif not (root / "src" / name).exists() and not (root / "build/generated" / name).exists():
                offences.append(f"{where}: there is no {name}")
        for prefix, owners in OWNERS:
            if re.match(prefix, name) and layer not in owners:
                offences.append(f"{where}: <{name}> belongs to {', '.join(sorted(owners)) or 'no layer yet'}")
print("\n".join(offences) or "layers: every include points upwards")
sys.exit(bool(offences))
