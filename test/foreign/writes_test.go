package foreign

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/beside/admit"
)

// followed is a DaemonSet that the test's webhook takes for one under a policy. No node is for it.
const followed = `apiVersion: apps/v1
kind: DaemonSet
metadata: {name: NAME, namespace: default, labels: {follows: a-policy}}
spec:
  selector: {matchLabels: {app: NAME}}
  updateStrategy: {rollingUpdate: {maxUnavailable: 3}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      nodeSelector: {no: where}
      containers: [{name: c, image: "example.com/c:1"}]
`

// writes has people and tools write DaemonSets under a policy, each write twice. What is stored does not change by the
// second, nobody has a conflict, and nobody sees a difference from what he wrote.
func (g *ground) writes(t *testing.T) {
	const strategy = "  updateStrategy: {rollingUpdate: {maxUnavailable: 3}}\n"
	without := func(name, part string) string {
		return strings.Replace(strings.ReplaceAll(followed, "NAME", name), part, "", 1)
	}
	client, server := g.write("client.yaml", without("client", "")), g.write("server.yaml", without("server", ""))
	bare, bareServer := g.write("bare.yaml", without("client", strategy)), g.write("bare-server.yaml", without("server", strategy))
	made := g.write("made.yaml", without("made", ""))
	g.kubectl(t, "create", "-f", made, "--save-config")
	// Whoever edits sees OnDelete, and writes what he wants in its place.
	t.Setenv("KUBE_EDITOR", `sed -i 's/type: OnDelete/rollingUpdate: {maxUnavailable: 7}/'`)
	limit := `{"spec":{"updateStrategy":{"rollingUpdate":{"maxUnavailable":"20%"}}}}`
	add := `[{"op":"add","path":"/spec/updateStrategy/rollingUpdate","value":{"maxUnavailable":"20%"}}]`
	const three, fifth, plain = `"maxUnavailable":3`, `"maxUnavailable":"20%"`, `"maxUnavailable":1`
	const seventh = `"maxUnavailable":7`
	for _, w := range []struct{ name, keeps, command string }{
		{"client", three, "apply -f " + client},
		{"server", three, "apply --server-side -f " + server},
		{"client", fifth, "patch ds/client --type=strategic -p " + limit},
		{"client", three, "apply -f " + client},
		{"client", fifth, "patch ds/client --type=merge -p " + limit},
		{"client", three, "replace -f " + client},
		{"client", three, "apply -f " + client},
		{"client", plain, "apply -f " + bare},
		{"server", plain, "apply --server-side -f " + bareServer},
		{"server", three, "apply --server-side -f " + server},
		{"client", three, "apply -f " + client},
		{"client", three, "label ds/client a=b --overwrite"},
		{"client", three, "set image ds/client c=example.com/c:2"},
		{"client", three, "set env ds/client A=b"},
		{"client", three, "annotate ds/client a=b --overwrite"},
		{"client", fifth, "patch ds/client --type=json -p " + add},
		{"client", plain, `patch ds/client --type=json -p [{"op":"remove","path":"/spec/updateStrategy"}]`},
		{"client", seventh, "edit ds/client"},
		{"client", three, "apply -f " + client},
		{"client", three, "apply --server-side --force-conflicts --field-manager=argocd-controller -f " + client},
		{"client", three, "apply --server-side --force-conflicts -f " + client},
		{"server", three, "apply --server-side --field-manager=kustomize-controller -f " + bareServer},
		{"server", plain, "apply --server-side -f " + bareServer},
		{"server", three, "apply --server-side -f " + server},
		{"made", three, "replace --force -f " + made},
		{"made", three, "apply -f " + made},
	} {
		var first *appsv1.DaemonSet
		for range 2 {
			g.kubectl(t, strings.Fields(w.command)...)
			ds, err := g.client.AppsV1().DaemonSets("default").Get(t.Context(), w.name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			kept := ds.Annotations[admit.UpdateStrategy]
			if s := ds.Spec.UpdateStrategy; s.Type != "OnDelete" || s.RollingUpdate != nil || !strings.Contains(kept, w.keeps) {
				t.Errorf("after %s the strategy is %+v, and %s is kept", w.command, s, kept)
			}
			if first != nil && first.Generation != ds.Generation {
				t.Errorf("%s, done again, makes generation %d of %d", w.command, ds.Generation, first.Generation)
			}
			first = ds
		}
	}
	g.run(t, "kubectl", "diff", "--server-side", "-f", server).ends(t, 0)
	g.kubectl(t, "apply", "-f", client)
	g.run(t, "kubectl", "diff", "-f", client).ends(t, 0)
	own := g.write("own.yaml", strings.Replace(without("client", ""), "{rollingUpdate: {maxUnavailable: 3}}", "{type: OnDelete}", 1))
	g.kubectl(t, "apply", "-f", own)
	if got := g.kubectl(t, "get", "ds/client", "-o", "jsonpath={.spec.updateStrategy.type}{.metadata.annotations}"); strings.Contains(got, admit.UpdateStrategy) {
		t.Errorf("the author's own OnDelete is not heard: %s", got)
	}
}

// daemonSet answers for a DaemonSet.
func daemonSet(r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	w := admit.DaemonSetWrite{New: &appsv1.DaemonSet{}, Standing: admit.Follows}
	err := json.Unmarshal(r.Object.Raw, w.New)
	if err != nil {
		return nil, fmt.Errorf("read the DaemonSet: %w", err)
	}
	if r.Operation == admissionv1.Update {
		w.Old = &appsv1.DaemonSet{}
		err = json.Unmarshal(r.OldObject.Raw, w.Old)
		if err != nil {
			return nil, fmt.Errorf("read the DaemonSet as it was: %w", err)
		}
	}
	var options struct{ FieldManager string }
	err = json.Unmarshal(r.Options.Raw, &options)
	if err != nil {
		return nil, fmt.Errorf("read the options: %w", err)
	}
	w.Manager = options.FieldManager
	s := admit.DaemonSet(w)
	out := &admissionv1.AdmissionResponse{UID: r.UID, Allowed: s.Refusal == "", Patch: s.Patch}
	if s.Patch != nil {
		out.PatchType = ptr.To(admissionv1.PatchTypeJSONPatch)
	}
	if s.Refusal != "" {
		out.Result = &metav1.Status{Message: s.Refusal}
	}
	if s.Warning != "" {
		out.Warnings = []string{s.Warning}
	}
	return out, nil
}
