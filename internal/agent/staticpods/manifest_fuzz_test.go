package staticpods

import (
	"testing"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// FuzzParse reads files that need not be manifests. One that is taken is a whole
// pod of this node, and the same one each time.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		plain, "", "---\n", "# nothing\n---\n" + plain, plain + "---\n" + plain, "a: &a [*a]", "{}", "null", "[]", "\x00",
		"apiVersion: v1\nkind: Node\n", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}`,
		plain + "  hostNetwork: true\n  priority: -1\n  restartPolicy: Never\n  volumes: [{name: v, hostPath: {path: /}}]\n",
		plain + "  volumes: [{name: v, secret: {secretName: s}}]\n", plain + "status: {phase: Running}\n",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: ../x, finalizers: [a/b], uid: x}\nspec: {}\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		pod, err := Parse(data, "/m/a.yaml", "n1")
		if err != nil {
			return
		}
		if pod.Name == "" || pod.Namespace == "" || pod.Spec.NodeName != "n1" || !IsUID(pod.UID) ||
			len(pod.Spec.Containers) == 0 || len(pod.Finalizers)+len(pod.OwnerReferences) > 0 || podfacts.IsMirror(pod) {
			t.Errorf("took %+v", pod)
		}
		again, err := Parse(data, "/m/a.yaml", "n1")
		if err != nil || !apiequality.Semantic.DeepEqual(pod, again) {
			t.Errorf("read twice: %v\n%+v\n%+v", err, pod, again)
		}
		mirror := Mirror(pod, "uid")
		if !podfacts.IsMirror(mirror) || !Mirrors(mirror, pod) {
			t.Errorf("%+v does not mirror %+v", mirror, pod)
		}
	})
}
