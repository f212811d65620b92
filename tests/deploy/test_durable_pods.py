"""The overlay that gives each pod a volume for durable sessions."""
import json
import re

import test_kubernetes as kubernetes


def render(folder, components):
    """Returns the objects of `durable` on top of an overlay with these components."""
    mine = kubernetes.overlay(folder, components)
    file = mine.parent / "durable" / "kustomization.yaml"
    file.write_text(file.read_text().replace("../default", "../mine"))
    return kubernetes.kustomize(file.parent)


def test_the_certificate_holds_for_each_pod():
    certificate = next(one for one in kubernetes.only(
        kubernetes.render(["tls", "tokens", "cert-manager"]), "Certificate")
        if one["metadata"]["name"] == "convgrad-tls")
    assert {f"*.{name}" for name in certificate["spec"]["dnsNames"]
            if name.startswith("convgrad-replicas.")} <= {*certificate["spec"]["dnsNames"]}


@kubernetes.ALL
def test_the_pods_are_those_of_the_deployment_with_a_volume(components, tmp_path):
    fitting = [name for name in components if name != "autoscaling"]
    documents = render(tmp_path, fitting)
    checked = [one for one in documents if one["kind"] not in kubernetes.FOREIGN]
    assert kubernetes.complaints(checked, tmp_path) == ""
    assert not kubernetes.only(documents, "Deployment")
    stateful, = kubernetes.only(documents, "StatefulSet")
    deployment, = kubernetes.only(kubernetes.render(fitting), "Deployment")
    claim, = stateful["spec"]["volumeClaimTemplates"]
    pod = stateful["spec"]["template"]
    server = pod["spec"]["containers"][0]
    mount = next(one for one in server["volumeMounts"]
                 if one["name"] == claim["metadata"]["name"])
    *server["args"], state_dir, advertise = server["args"]
    assert re.fullmatch(f"--state_dir={mount['mountPath']}/\\w+", state_dir)
    variable = next(one for one in server["env"] if one["name"] == "POD_NAME")
    server["env"].remove(variable)
    assert variable["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    name = f"{stateful['spec']['serviceName']}.{stateful['metadata']['namespace']}"
    assert advertise == f"--advertise=$({variable['name']}).{name}:7070"
    if not server["env"]:
        del server["env"]
    assert any(one["metadata"]["name"] == stateful["spec"]["serviceName"]
               and one["spec"]["clusterIP"] == "None"
               for one in kubernetes.only(documents, "Service")
               if "clusterIP" in one["spec"])
    server["volumeMounts"].remove(mount)
    if not server["volumeMounts"]:
        del server["volumeMounts"]
    expected = deployment["spec"]["template"]
    assert pod["spec"].pop("terminationGracePeriodSeconds") > \
        expected["spec"].pop("terminationGracePeriodSeconds")
    assert json.dumps(pod, sort_keys=True) == json.dumps(expected, sort_keys=True)
