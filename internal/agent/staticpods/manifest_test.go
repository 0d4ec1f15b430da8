package staticpods

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

const plain = `apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - {name: main, image: "example.com/web:v1"}
`

func TestParse(t *testing.T) {
	pod, err := Parse([]byte(plain), "/m/web.yaml", "n1")
	if err != nil {
		t.Fatal(err)
	}
	if pod.Name != "web-n1" || pod.Namespace != "default" || pod.Spec.NodeName != "n1" || pod.Labels["app"] != "web" {
		t.Errorf("got %s/%s on %q, labels %v", pod.Namespace, pod.Name, pod.Spec.NodeName, pod.Labels)
	}
	if !IsUID(pod.UID) || pod.Annotations["kubernetes.io/config.hash"] != string(pod.UID) ||
		pod.Annotations["kubernetes.io/config.source"] != "file" {
		t.Errorf("UID %q, annotations %v", pod.UID, pod.Annotations)
	}
	if pod.Spec.RestartPolicy != corev1.RestartPolicyAlways ||
		pod.Spec.Containers[0].ImagePullPolicy != corev1.PullIfNotPresent {
		t.Error("defaults are missing")
	}
	if len(pod.Spec.Tolerations) != 1 || pod.Spec.Tolerations[0].Effect != corev1.TaintEffectNoExecute ||
		*pod.Spec.Priority != nodeCritical {
		t.Errorf("tolerations %v, priority %v", pod.Spec.Tolerations, pod.Spec.Priority)
	}
	if IsUID("6f9c1c0e-7a53-4f0c-9a0c-1b1f7e1a2b3c") {
		t.Error("a UID of the API counts as a static pod's")
	}
}

func TestUIDFollowsTheContent(t *testing.T) {
	uid := func(text, path, node string) string {
		t.Helper()
		pod, err := Parse([]byte(text), path, node)
		if err != nil {
			t.Fatal(err)
		}
		return string(pod.UID)
	}
	first := uid(plain, "/m/web.yaml", "n1")
	asJSON := `{"kind":"Pod","apiVersion":"v1","spec":{"containers":[{"image":"example.com/web:v1","name":"main"}]},"metadata":{"labels":{"app":"web"},"name":"web"}}`
	for name, same := range map[string]string{
		"a comment": "# for the web\n" + plain, "JSON": asJSON, "a document mark": "---\n" + plain,
	} {
		if got := uid(same, "/m/web.yaml", "n1"); got != first {
			t.Errorf("%s changes the UID", name)
		}
	}
	for name, other := range map[string]string{
		"the image": uid(strings.Replace(plain, ":v1", ":v2", 1), "/m/web.yaml", "n1"),
		"the file":  uid(plain, "/m/other.yaml", "n1"),
		"the node":  uid(plain, "/m/web.yaml", "n2"),
	} {
		if other == first {
			t.Errorf("%s does not change the UID", name)
		}
	}
}

func TestRefusedManifests(t *testing.T) {
	with := func(lines string) string { return plain + lines }
	in := func(old, new string) string { return strings.Replace(plain, old, new, 1) }
	for name, c := range map[string]struct{ text, want string }{
		"empty":         {"# nothing\n", "is empty"},
		"several":       {plain + "---\n" + plain, "holds several documents"},
		"not YAML":      {"{", "not YAML or JSON"},
		"another kind":  {in("kind: Pod", "kind: PodList"), `holds the kind "PodList"`},
		"unknown field": {with("  dnsPolicies: x\n"), `unknown field "dnsPolicies"`},
		"no name":       {in("name: web,", ""), "metadata.name: Required value"},
		"bad name":      {in("name: web,", "name: Web,"), "metadata.name: Invalid value"},
		"no container": {"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: []}\n",
			"spec.containers: Required value"},
		"service account": {with("  serviceAccountName: a\n"), "spec.serviceAccountName: Forbidden: " + needsAPI},
		"pull secret":     {with("  imagePullSecrets: [{name: a}]\n"), "spec.imagePullSecrets: Forbidden: "},
		"secret": {with("  volumes: [{name: a, secret: {secretName: a}}]\n"),
			"spec.volumes[0].secret: Forbidden: "},
		"config map": {with("  volumes: [{name: a, configMap: {name: a}}]\n"),
			"spec.volumes[0].configMap: Forbidden: "},
		"projected": {with("  volumes: [{name: a, projected: {sources: [{configMap: {name: a}}]}}]\n"),
			"spec.volumes[0].projected.sources[0]: Forbidden: "},
		"from a secret": {in(`web:v1"`, `web:v1", envFrom: [{secretRef: {name: a}}]`),
			"spec.containers[0].envFrom[0]: Forbidden: "},
		"from a config map": {in(`web:v1"`, `web:v1", env: [{name: A, valueFrom: {configMapKeyRef: {name: a, key: b}}}]`),
			"spec.containers[0].env[0].valueFrom: Forbidden: "},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse([]byte(c.text), "/m/web.yaml", "n1"); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
	if _, err := Parse([]byte(with("  volumes: [{name: a, projected: {sources: [{downwardAPI: {items: []}}]}}, {name: b, emptyDir: {}}]\n")), "/m/web.yaml", "n1"); err != nil {
		t.Errorf("volumes that need no API are refused: %v", err)
	}
}
