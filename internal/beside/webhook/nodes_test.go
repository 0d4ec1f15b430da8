package webhook

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// TestANodeThatJoins: it is closed if the NodeStartups of this moment say so and every listed DaemonSet that there is
// tolerates the taint. Whatever happens, it joins.
func TestANodeThatJoins(t *testing.T) {
	const path = "/apis/everynode.io/v1alpha1/nodestartups"
	listed := &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: v1alpha1.NodeStartupSpec{
		Groups: []v1alpha1.StartupGroup{{DaemonSets: []v1alpha1.StartupDaemonSet{{Namespace: "default", Name: "cni"}}}}}}
	objects := api{path: v1alpha1.NodeStartupList{Items: []v1alpha1.NodeStartup{*listed}}}
	s := newServer(t, objects, true)
	ask := func(taints string) string {
		t.Helper()
		_, got := post(t, s, "node", fmt.Sprintf(
			`{"request":{"uid":"x","operation":"CREATE","object":{"metadata":{"name":"n"},"spec":{%s}}}}`, taints))
		if !got.Allowed {
			t.Fatalf("the node may not join: %+v", got)
		}
		return string(got.Patch)
	}
	closes := func(patch string) bool {
		return strings.Contains(patch, `"key":"`+nodestartup.TaintKey+`","value":"all_1"`)
	}
	const other = `"taints":[{"key":"node.kubernetes.io/not-ready","effect":"NoSchedule"}]`

	if got := ask(other); !closes(got) || !strings.Contains(got, `"path":"/spec/taints/-"`) {
		t.Errorf("with a DaemonSet that is missing the answer is %s", got)
	}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cni"}}
	s.SetSet(set)
	if got := ask(other); closes(got) || !strings.Contains(got, "default/cni does not tolerate") {
		t.Errorf("with a DaemonSet that lacks the toleration the answer is %s", got)
	}
	set.Spec.Template.Spec.Tolerations = []corev1.Toleration{nodestartup.Toleration()}
	s.SetSet(set)
	if got := ask(""); !closes(got) {
		t.Errorf("with a DaemonSet that has it the answer is %s", got)
	}
	set.Spec.Template.Spec.Tolerations = nil
	s.SetSet(set)
	s.DeleteSet(set)
	if got := ask(""); !closes(got) {
		t.Errorf("with a DaemonSet that is gone the answer is %s", got)
	}
	objects[path] = v1alpha1.NodeStartupList{}
	var patch []struct{ Path string }
	if err := json.Unmarshal([]byte(ask("")), &patch); err != nil || len(patch) != 3 ||
		!strings.HasSuffix(patch[2].Path, "startup-mark") {
		t.Errorf("without a NodeStartup the node is marked alone, and the answer is %v (%v)", patch, err)
	}
	delete(objects, path)
	if got := ask(other); got != "" {
		t.Errorf("without knowing the NodeStartups the answer is %s", got)
	}
	if _, got := post(t, s, "node", `{"request":{"object":7}}`); !got.Allowed || got.Patch != nil {
		t.Errorf("about a Node that cannot be read the answer is %+v", got)
	}
}
