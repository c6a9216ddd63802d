"""Builds the wheel and the sdist, for pip (PEP 517) and as python3 backend.py FOLDER.

It needs the standard library alone. The same files make the same bytes: nothing is
compressed, as not every zlib compresses alike.
"""

import base64
import gzip
import hashlib
import io
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
PROJECT = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
STEM = f"{PROJECT['name']}-{PROJECT['version']}"
TIME = 315532800  # 1980, where zip begins
METADATA = f"""\
Metadata-Version: 2.4
Name: {PROJECT['name']}
Version: {PROJECT['version']}
Summary: {PROJECT['description']}
License-Expression: {PROJECT['license']}
License-File: LICENSE
Requires-Python: {PROJECT['requires-python']}
""".encode()
WHEEL = b"Wheel-Version: 1.0\nGenerator: noused\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def build_wheel(folder, config_settings=None, metadata_directory=None):
    files = _files("noused") | {
        f"{STEM}.dist-info/METADATA": METADATA,
        f"{STEM}.dist-info/WHEEL": WHEEL,
        f"{STEM}.dist-info/licenses/LICENSE": _licence(),
    }
    record = f"{STEM}.dist-info/RECORD"
    lines = [f"{name},sha256={_digest(data)},{len(data)}" for name, data in files.items()] + [record + ",,"]
    files[record] = "\n".join(lines + [""]).encode()
    made = Path(folder) / f"{STEM}-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as wheel:
        for name, data in files.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = 0o100644 << 16
            wheel.writestr(info, data)
    return made.name


def build_sdist(folder, config_settings=None):
    files = _files("noused", "examples", "backend.py", "pyproject.toml") | {"LICENSE": _licence(), "PKG-INFO": METADATA}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as sdist:
        for name, data in files.items():
            info = tarfile.TarInfo(f"{STEM}/{name}")
            info.size, info.mtime = len(data), TIME
            sdist.addfile(info, io.BytesIO(data))
    made = Path(folder) / f"{STEM}.tar.gz"
    made.write_bytes(gzip.compress(packed.getvalue(), compresslevel=0, mtime=TIME))
    return made.name


def _files(*names):
    """The files of the tree by name, those of folders too."""
    found = []
    for path in map(HERE.joinpath, names):
        found += path.iterdir() if path.is_dir() else [path]
    return {str(path.relative_to(HERE)): path.read_bytes() for path in sorted(found) if path.is_file()}


def _licence():
    own = HERE / "LICENSE"  # of an sdist
    return (own if own.exists() else HERE.parent.parent / "LICENSE").read_bytes()


def _digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    for build in (build_wheel, build_sdist):
        build(sys.argv[1])
