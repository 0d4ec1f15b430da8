package plan

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/survey/surveytest"
)

// A plan names the nodes on which variants are in conflict, or cannot be had, and says what becomes of them.
func TestPlanNamesNodesWithoutTheirVariant(t *testing.T) {
	w := surveytest.New(t)
	ds, hashes := w.DaemonSet("log-agent", "example.com/agent:1.4")
	for name, label := range map[string]string{
		"both-1": "both", "both-2": "both", "both-3": "both", "both-4": "both", "both-new": "both",
		"bad-1": "bad", "bad-new": "bad", "plain": "none",
	} {
		w.Node(name, surveytest.Label("size", label))
		if !strings.HasSuffix(name, "-new") {
			w.Pod(ds, name, hashes[0], surveytest.ReadyAfter(20*time.Second))
		}
	}
	w.Node("elsewhere", surveytest.Tainted, surveytest.Label("size", "both"))
	vary := func(name, size, container, formula string) {
		v := &v1alpha1.DaemonSetVariant{ObjectMeta: metav1.ObjectMeta{Namespace: ds.Namespace, Name: name}}
		v.UID, v.Spec.Nodes = types.UID(name), &metav1.LabelSelector{MatchLabels: map[string]string{"size": size}}
		v.Spec.Resources = map[string]v1alpha1.VariantResources{
			container: {Requests: map[corev1.ResourceName]string{corev1.ResourceCPU: formula}},
		}
		w.Objects.Variants = append(w.Objects.Variants, v)
	}
	w.Objects.Varied = true
	vary("b", "both", "agent", "0.2")
	vary("a", "both", "agent", "0.1")
	vary("c", "bad", "agent", "node.labels['cores'] == '' ? 1.0 : 2.0")
	show := func() (text string, f *Forecast) {
		f = forecast(t, w, ds, ds)
		var out bytes.Buffer
		f.Write(&out)
		return strings.Join(strings.Fields(out.String()), " "), f
	}
	contains := func(text string, all ...string) {
		t.Helper()
		for _, want := range all {
			if !strings.Contains(text, want) {
				t.Errorf("the plan does not say %q:\n%s", want, text)
			}
		}
	}
	text, f := show()
	contains(text,
		"Conflict of variants a, b on 5 nodes, such as both-1, both-2, both-3 (-o json lists all): they have the same priority. "+
			"4 keep the pod that they have, 1 get that of a.",
		"Variant c fails on 2 nodes (bad-1, bad-new): resources.agent.requests.cpu: no such key: cores. "+
			"1 keep the pod that they have, 1 have none and get none.")
	raw, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	contains(string(raw),
		`"conflicts":[{"variants":["a","b"],"nodes":["both-1","both-2","both-3","both-4","both-new"],"keep":4,"given":1}]`,
		`"failures":[{"variant":"c","why":"resources.agent.requests.cpu: no such key: cores","nodes":[{"node":"bad-1",`+
			`"why":"resources.agent.requests.cpu: no such key: cores"},{"node":"bad-new",`,
		`"keep":1,"none":1}]`)
	// Also where nothing changes at all, and where nobody is chosen.
	w.Objects.Variants = w.Objects.Variants[:2]
	vary("d", "nobody", "other", "0.1")
	w.Pod(ds, "both-new", hashes[0])
	w.Pod(ds, "bad-new", hashes[0])
	text, f = show()
	contains(text, "nothing changes Conflict of variants a, b on 5 nodes", "5 keep the pod that they have.",
		"Variant d would fail on each node, and chooses none: resources.other.requests.cpu: the template has no container other.")
	if f.Changes() {
		t.Errorf("a conflict changes something: %+v", f)
	}
	w.Objects.Variants = nil
	text, f = show()
	if len(f.Conflicts)+len(f.Failures) > 0 || strings.Contains(text, "ariant") {
		t.Errorf("without variants the plan is %q", text)
	}
}
