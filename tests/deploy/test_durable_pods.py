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
    flag = server["args"].pop()
    assert re.fullmatch(f"--state_dir={mount['mountPath']}/\\w+", flag)
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
