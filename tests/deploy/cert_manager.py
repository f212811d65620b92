"""Does the work of cert-manager for Issuers and Certificates, with openssl."""
import base64
import pathlib
import subprocess
import tempfile

USAGES = {"digital signature": ("keyUsage", "digitalSignature"),
          "server auth": ("extendedKeyUsage", "serverAuth"),
          "client auth": ("extendedKeyUsage", "clientAuth")}


def extensions(spec):
    """Returns the lines of openssl's extension file for a Certificate."""
    if spec.get("isCA"):
        return ["basicConstraints=critical,CA:TRUE",
                "keyUsage=critical,keyCertSign,cRLSign"]
    lines = ["basicConstraints=critical,CA:FALSE"]
    if "dnsNames" in spec:
        lines.append("subjectAltName=" + ",".join(
            f"DNS:{name}" for name in spec["dnsNames"]))
    for kind in ("keyUsage", "extendedKeyUsage"):
        values = [value for usage in spec["usages"]
                  for extension, value in [USAGES[usage]] if extension == kind]
        if values:
            lines.append(f"{kind}=" + ",".join(values))
    return lines


def make(spec, ca):
    """Returns the secret's files for a Certificate. `ca`, the files of another secret,
    signs it; if `ca` is None, it is self-signed."""
    assert spec["privateKey"]["algorithm"] == "ECDSA"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)

        def openssl(*arguments):
            subprocess.run(["openssl", *arguments], cwd=folder, check=True,
                           capture_output=True)

        (folder / "extensions").write_text("\n".join(extensions(spec)))
        openssl("req", "-new", "-newkey", "ec", "-pkeyopt",
                f"ec_paramgen_curve:P-{spec['privateKey']['size']}", "-nodes",
                "-subj", f"/CN={spec.get('commonName', 'without')}",
                "-keyout", "tls.key", "-out", "request")
        for file, data in (ca or {}).items():
            (folder / f"ca-{file}").write_bytes(data)
        signer = (["-signkey", "tls.key"] if ca is None else
                  ["-CA", "ca-tls.crt", "-CAkey", "ca-tls.key", "-set_serial", "2"])
        days = int(spec["duration"].removesuffix("h")) // 24
        openssl("x509", "-req", "-in", "request", "-days", str(days), "-extfile",
                "extensions", *signer, "-out", "tls.crt")
        certificate = (folder / "tls.crt").read_bytes()
        return {"tls.crt": certificate, "tls.key": (folder / "tls.key").read_bytes(),
                "ca.crt": certificate if ca is None else ca["tls.crt"]}


def files_of(secret):
    return {name: base64.b64decode(data) for name, data in secret["data"].items()}


def reconcile(state):
    """Makes the secrets of those Certificates whose issuers are ready."""
    waiting = state.all("Certificate")
    for certificate in waiting * len(waiting):
        spec, namespace = certificate["spec"], certificate["metadata"]["namespace"]
        issuer = state.get("Issuer", spec["issuerRef"]["name"], namespace)
        if state.get("Secret", spec["secretName"], namespace) or not issuer:
            continue
        ca = None
        if "ca" in issuer["spec"]:
            secret = state.get("Secret", issuer["spec"]["ca"]["secretName"], namespace)
            if not secret:
                continue
            ca = files_of(secret)
        data = {name: base64.b64encode(content).decode()
                for name, content in make(spec, ca).items()}
        state.put({"apiVersion": "v1", "kind": "Secret", "data": data, "metadata": {
            "name": spec["secretName"], "namespace": namespace}})
