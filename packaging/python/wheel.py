#!/usr/bin/env python3
"""Packs built programs as a Python wheel: wheel.py PROGRAMS VERSION PLATFORM OUT

PROGRAMS is a folder with `shikiri`, `shikiri-hook` and the papers that go with them. `pip install`
puts the programs themselves into the environment's bin folder; no Python runs when they are started.
The same input gives the same bytes.
"""

import base64
import hashlib
import json
import pathlib
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Wheels have no time of their own: the first that a zip file can hold.
WHEN = (1980, 1, 1, 0, 0, 0)
PROGRAMS = ["shikiri", "shikiri-hook"]
LICENCES = ["LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY-NOTICES"]


def metadata(version, readme):
    fields = [
        "Metadata-Version: 2.4",
        "Name: shikiri",
        f"Version: {version}",
        "Summary: The session layer for teams of AI agents",
        "License-Expression: MIT OR Apache-2.0",
        *(f"License-File: {name}" for name in LICENCES),
        "Requires-Python: >=3.8",
        "Description-Content-Type: text/markdown",
    ]
    # The MCP registry takes a package of PyPI only if its description names the server.
    server = json.loads((ROOT / "server.json").read_text(encoding="utf-8"))["name"]
    return "\n".join(fields) + f"\n\n{readme}\n<!-- mcp-name: {server} -->\n"


def main(folder, version, platform, out):
    folder = pathlib.Path(folder)
    tag = f"py3-none-{platform}"
    info, scripts = f"shikiri-{version}.dist-info", f"shikiri-{version}.data/scripts"
    wheel = f"Wheel-Version: 1.0\nGenerator: shikiri\nRoot-Is-Purelib: false\nTag: {tag}\n"
    readme = (folder / "README.md").read_text(encoding="utf-8")

    files = [(f"{scripts}/{name}", (folder / name).read_bytes(), 0o755) for name in PROGRAMS]
    files += [
        (f"{info}/licenses/{name}", (folder / name).read_bytes(), 0o644) for name in LICENCES
    ]
    files.append((f"{info}/METADATA", metadata(version, readme).encode(), 0o644))
    files.append((f"{info}/WHEEL", wheel.encode(), 0o644))

    record = []
    for name, content, _ in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record.append(f"{name},sha256={digest},{len(content)}")
    record.append(f"{info}/RECORD,,")
    files.append((f"{info}/RECORD", "\n".join(record).encode() + b"\n", 0o644))

    path = pathlib.Path(out) / f"shikiri-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content, mode in files:
            entry = zipfile.ZipInfo(name, WHEN)
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    print(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
