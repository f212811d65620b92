"""Makes keys and certificates for tests."""

from __future__ import annotations

import pathlib
import subprocess


def openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def make_certificates(folder: pathlib.Path, names: str) -> pathlib.Path:
    """Fills the folder with a CA, one that is foreign, and keys and certificates of server and
    client for `names`, such as "DNS:trainer.test,IP:127.0.0.1". Returns the folder."""
    for ca in ("ca", "foreign"):
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", 2, "-subj",
                f"/CN={ca}", "-keyout", folder / f"{ca}.key", "-out", folder / f"{ca}.pem")
    (folder / "names").write_text(f"subjectAltName={names}")
    for name in ("server", "client"):
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout",
                folder / f"{name}.key", "-out", folder / f"{name}.csr")
        openssl("x509", "-req", "-days", 2, "-in", folder / f"{name}.csr", "-CA",
                folder / "ca.pem", "-CAkey", folder / "ca.key", "-CAcreateserial",
                "-extfile", folder / "names", "-out", folder / f"{name}.pem")
    return folder
