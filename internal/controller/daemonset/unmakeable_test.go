package daemonset

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// Where a formula fails no pod can be made, so the one that is there stays when the template changes, too. All other
// nodes are changed, and that one is when the formula does not fail there any more.
func TestATemplateTakesNoDaemonWhereAFormulaFails(t *testing.T) {
	a := policyAPI{newFakeAPI(t), func() bool { return false }}
	share := func(name string, is bool) {
		edit(t, a.fakeAPI, "", name, func(n *corev1.Node) {
			delete(n.Labels, "share")
			if is {
				n.Labels["share"] = "0.25"
			}
		})
	}
	want := map[string]string{}
	for _, name := range []string{"n0", "n1", "n2"} {
		a.add(sizedNode(name, "xl", 4))
		share(name, true)
		want[name] = "plain 4Gi"
	}
	a.add(testVariant("large", "xl", "", `node.allocatable.memory * double(node.labels["share"])`))
	a.add(testDaemonSet("logs"))
	defer startWithVariants(t, a)()
	before := wantDaemons(t, a.fakeAPI, want)
	share("n1", false)
	edit(t, a.fakeAPI, "default", "logs", func(ds *appsv1.DaemonSet) {
		ds.Spec.Template.Spec.Containers[0].Image, ds.Generation = "demo:v2", ds.Generation+1
	})
	eventuallyChanged := func(nodes ...string) {
		t.Helper()
		eventually(t, func() string {
			_, now := daemons(t, a.fakeAPI)
			if got := changed(before, now); len(now) < 3 || !slices.Equal(got, nodes) {
				return "not yet"
			}
			return ""
		})
	}
	eventuallyChanged("n0", "n2")
	if got := changed(before, quiet(t, a.fakeAPI)); !slices.Equal(got, []string{"n0", "n2"}) {
		t.Errorf("changed: %v, want n0 and n2", got)
	}
	share("n1", true)
	eventuallyChanged("n0", "n1", "n2")
}
