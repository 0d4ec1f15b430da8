package daemonset

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/record"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/objects/pod"
)

func (a policyAPI) UpdateVariantStatus(_ context.Context, v *v1alpha1.DaemonSetVariant) (*v1alpha1.DaemonSetVariant, error) {
	return overwrite(a, kindVariant, v, func(stored *v1alpha1.DaemonSetVariant) { stored.Status = v.Status })
}

func startWithVariants(t *testing.T, a policyAPI, change ...func(*Config)) (stop func()) {
	t.Helper()
	config := Config{Informers: a, Writer: a, Recorder: record.NewFakeRecorder(100000), Rollouts: a, Variants: a}
	for _, f := range change {
		f(&config)
	}
	c, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

// sizedNode is a node of so many cores, with four times as many Gi.
func sizedNode(name, size string, cores int64) *corev1.Node {
	n := testNode(name)
	n.Labels = map[string]string{"size": size, "name": name}
	n.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU: *apiresource.NewQuantity(cores, apiresource.DecimalSI), corev1.ResourceMemory: *apiresource.NewQuantity(cores<<32, apiresource.BinarySI)}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}

func testVariant(name, size string, patch string, memory string) *v1alpha1.DaemonSetVariant {
	v := &v1alpha1.DaemonSetVariant{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Generation: 1}}
	if size != "" {
		v.Spec.Nodes = &metav1.LabelSelector{MatchLabels: map[string]string{"size": size}}
		v.Spec.Priority = 10
	}
	if patch != "" {
		v.Spec.Patch = &runtime.RawExtension{Raw: []byte(patch)}
	}
	if memory != "" {
		v.Spec.Resources = map[string]v1alpha1.VariantResources{
			"c": {Requests: map[corev1.ResourceName]string{corev1.ResourceMemory: memory}}}
	}
	return v
}

func threads(n int) string {
	return fmt.Sprintf(`{"spec": {"containers": [{"name": "c", "env": [{"name": "THREADS", "value": "%d"}]}]}}`, n)
}

// daemons are the pods by node: what tells them apart, and their UID.
func daemons(t *testing.T, a *fakeAPI) (shapes map[string]string, uids map[string]types.UID) {
	t.Helper()
	shapes, uids = map[string]string{}, map[string]types.UID{}
	for _, p := range list[*corev1.Pod](a, kindPod) {
		c := &p.Spec.Containers[0]
		shape := "plain"
		if len(c.Env) > 0 {
			shape = "threads " + c.Env[0].Value
		}
		if m, is := c.Resources.Requests[corev1.ResourceMemory]; is {
			shape += " " + m.String()
		}
		node := pod.TargetNode(p)
		if _, twice := shapes[node]; twice {
			shape = "two pods"
		}
		shapes[node], uids[node] = shape, p.UID
	}
	return shapes, uids
}

func wantDaemons(t *testing.T, a *fakeAPI, want map[string]string) map[string]types.UID {
	t.Helper()
	var uids map[string]types.UID
	eventually(t, func() string {
		var shapes map[string]string
		shapes, uids = daemons(t, a)
		if !maps.Equal(shapes, want) {
			return fmt.Sprintf("daemons are %v, want %v", shapes, want)
		}
		return ""
	})
	return uids
}

// changed are the nodes whose pod is another.
func changed(was, is map[string]types.UID) (out []string) {
	for node := range is {
		if was[node] != is[node] {
			out = append(out, node)
		}
	}
	slices.Sort(out)
	return out
}

func quiet(t *testing.T, a *fakeAPI) map[string]types.UID {
	t.Helper()
	_, before := daemons(t, a)
	time.Sleep(100 * time.Millisecond)
	_, after := daemons(t, a)
	if c := changed(before, after); len(c) > 0 {
		t.Errorf("pods are made again and again: on %v", c)
	}
	return after
}

// Each node has the pod of its variant. A variant that comes, changes or goes touches the nodes whose pod is another by
// it, and no others, also where a controller starts in the middle.
func TestPodsDifferByVariant(t *testing.T) {
	a := policyAPI{newFakeAPI(t), func() bool { return false }}
	for i, size := range []string{"s", "s", "m", "xl", "xl"} {
		a.add(sizedNode(fmt.Sprint("n", i), size, []int64{2, 2, 16, 192, 192}[i]))
	}
	stop := startWithVariants(t, a)
	defer func() { stop() }()
	a.add(testDaemonSet("logs"))
	settled(t, a.fakeAPI, "logs", 5)
	first := wantDaemons(t, a.fakeAPI, map[string]string{"n0": "plain", "n1": "plain", "n2": "plain", "n3": "plain", "n4": "plain"})

	a.add(testVariant("large", "xl", threads(8), ""))
	large := wantDaemons(t, a.fakeAPI, map[string]string{"n0": "plain", "n1": "plain", "n2": "plain", "n3": "threads 8", "n4": "threads 8"})
	if got := changed(first, large); fmt.Sprint(got) != "[n3 n4]" {
		t.Errorf("a variant of large nodes touches %v", got)
	}
	settled(t, a.fakeAPI, "logs", 5)

	a.add(testVariant("all", "", "", "node.allocatable.memory * 0.01"))
	all := wantDaemons(t, a.fakeAPI, map[string]string{"n0": "plain 96Mi", "n1": "plain 96Mi", "n2": "plain 656Mi", "n3": "threads 8", "n4": "threads 8"})
	if got := changed(large, all); fmt.Sprint(got) != "[n0 n1 n2]" {
		t.Errorf("a variant of all others touches %v", got)
	}
	settled(t, a.fakeAPI, "logs", 5)
	stop()
	stop = startWithVariants(t, a)
	settled(t, a.fakeAPI, "logs", 5)
	if got := changed(all, quiet(t, a.fakeAPI)); len(got) > 0 {
		t.Errorf("a controller that starts touches %v", got)
	}

	// A twentieth more is less than a tenth, and another text is not another pod.
	edit(t, a.fakeAPI, "default", "all", func(v *v1alpha1.DaemonSetVariant) {
		*v = *testVariant("all", "", `{"spec": {"containers": [{"name": "c", "image": "demo:v1"}]}}`, "node.allocatable.memory * 0.0103")
		v.Generation = 2
	})
	time.Sleep(100 * time.Millisecond)
	if got := changed(all, quiet(t, a.fakeAPI)); len(got) > 0 {
		t.Errorf("a change that makes no other pods touches %v", got)
	}

	a.erase(kindVariant, "default", "all")
	a.erase(kindVariant, "default", "large")
	gone := wantDaemons(t, a.fakeAPI, map[string]string{"n0": "plain", "n1": "plain", "n2": "plain", "n3": "plain", "n4": "plain"})
	settled(t, a.fakeAPI, "logs", 5)
	if got := changed(gone, quiet(t, a.fakeAPI)); len(got) > 0 {
		t.Errorf("without variants %v are touched", got)
	}
}

// A node whose labels or size change gets what is right for it, within the limits.
func TestNodesThatBecomeOthers(t *testing.T) {
	a := policyAPI{newFakeAPI(t), func() bool { return false }}
	want := map[string]string{}
	for i := range 6 {
		name := fmt.Sprint("n", i)
		a.add(sizedNode(name, "s", 4))
		want[name] = "plain 176Mi"
	}
	down := 0
	a.deleting = func(p *corev1.Pod) {
		n := 0
		for _, obj := range a.objects[kindPod] {
			if pod.IsReady(obj.(*corev1.Pod)) {
				n++
			}
		}
		down = max(down, 6-n+1)
	}
	a.add(testVariant("all", "", "", "node.allocatable.memory * 0.01"))
	a.add(testVariant("large", "xl", threads(8), ""))
	defer startWithVariants(t, a)()
	a.add(testDaemonSet("logs"))
	settled(t, a.fakeAPI, "logs", 6)
	before := wantDaemons(t, a.fakeAPI, want)
	for i := range 3 {
		name := fmt.Sprint("n", i)
		want[name] = "threads 8"
		edit(t, a.fakeAPI, "", name, func(n *corev1.Node) { n.Labels["size"] = "xl" })
	}
	edit(t, a.fakeAPI, "", "n3", func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourceMemory] = apiresource.MustParse("32Gi") })
	edit(t, a.fakeAPI, "", "n4", func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourceMemory] = apiresource.MustParse("17Gi") })
	want["n3"] = "plain 336Mi"
	after := wantDaemons(t, a.fakeAPI, want)
	settled(t, a.fakeAPI, "logs", 6)
	if got := changed(before, after); fmt.Sprint(got) != "[n0 n1 n2]" { // n3 is resized
		t.Errorf("%v are touched", got)
	}
	if down > 1 {
		t.Errorf("%d nodes were without their daemon at once", down)
	}
}

// Under a policy a changed variant travels in waves. One that fails stops where it began, and goes back; nobody else is
// touched, not even by the way back.
func TestABadVariantStopsAtItsCanary(t *testing.T) {
	a := policyAPI{newFakeAPI(t), func() bool { return false }}
	want := map[string]string{}
	for i := range 8 {
		name := fmt.Sprint("n", i)
		size := []string{"s", "xl"}[i%2]
		a.add(sizedNode(name, size, 4))
		want[name] = map[string]string{"s": "plain", "xl": "threads 8"}[size]
	}
	a.add(testVariant("large", "xl", threads(8), ""))
	none := intstr.FromInt32(0)
	restarts := int32(1)
	a.add(&v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "careful", Generation: 1}, Spec: v1alpha1.RolloutPolicySpec{
		Waves: []v1alpha1.Wave{{Name: "canary", Nodes: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "name", Operator: metav1.LabelSelectorOpIn, Values: []string{"n0", "n1"}}}}}},
		Failure: v1alpha1.Failure{Max: &none, Restarts: &restarts, Then: v1alpha1.FailureRollback},
	}})
	stop := startWithVariants(t, a)
	defer func() { stop() }()
	a.add(testDaemonSet("logs"))
	settled(t, a.fakeAPI, "logs", 8)
	before := wantDaemons(t, a.fakeAPI, want)
	phase := func(want v1alpha1.Phase) func() string {
		return func() string {
			r, err := a.GetRollout(t.Context(), "default", "logs")
			if err != nil {
				return err.Error()
			}
			if r.Status.Phase != want {
				return fmt.Sprintf("it is %s: %s %v", r.Status.Phase, r.Status.Message, r.Status.Counts)
			}
			return ""
		}
	}
	eventually(t, phase(v1alpha1.PhaseComplete))

	// Pods with twelve threads fall over.
	var fallen []string
	a.mu.Lock()
	a.started = func(p *corev1.Pod) {
		if env := p.Spec.Containers[0].Env; len(env) > 0 && env[0].Value == "12" {
			fallen = append(fallen, pod.TargetNode(p))
			p.Status.Conditions[0].Status = corev1.ConditionFalse
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", RestartCount: 5}}
		}
	}
	a.mu.Unlock()
	edit(t, a.fakeAPI, "default", "large", func(v *v1alpha1.DaemonSetVariant) {
		v.Spec.Patch.Raw, v.Generation = []byte(threads(12)), 2
	})
	eventually(t, phase(v1alpha1.PhaseRolledBack))
	after := wantDaemons(t, a.fakeAPI, want)
	a.mu.Lock()
	if fmt.Sprint(fallen) != "[n1]" {
		t.Errorf("the bad variant reached %v", fallen)
	}
	a.mu.Unlock()
	if got := changed(before, after); fmt.Sprint(got) != "[n1]" {
		t.Errorf("%v are touched", got)
	}
	stop()
	stop = startWithVariants(t, a)
	if got := changed(after, quiet(t, a.fakeAPI)); len(got) > 0 {
		t.Errorf("a controller that starts touches %v", got)
	}

	// A node that joins has the stable one; and mended, the change goes everywhere it belongs.
	a.add(sizedNode("n9", "xl", 4))
	want["n9"] = "threads 8"
	wantDaemons(t, a.fakeAPI, want)
	edit(t, a.fakeAPI, "default", "large", func(v *v1alpha1.DaemonSetVariant) {
		v.Spec.Patch.Raw, v.Generation = []byte(threads(16)), 3
	})
	for _, name := range []string{"n1", "n3", "n5", "n7", "n9"} {
		want[name] = "threads 16"
	}
	last := wantDaemons(t, a.fakeAPI, want)
	if got := changed(after, last); fmt.Sprint(got) != "[n1 n3 n5 n7 n9]" {
		t.Errorf("%v are touched", got)
	}
	eventually(t, phase(v1alpha1.PhaseComplete))
}

// Where two variants of one priority choose a node it keeps what it has, a formula that fails there leaves it alone,
// and both are said.
func TestVariantsThatCannotBeHad(t *testing.T) {
	a := policyAPI{newFakeAPI(t), func() bool { return false }}
	want := map[string]string{}
	for i := range 4 {
		name := fmt.Sprint("n", i)
		a.add(sizedNode(name, []string{"s", "xl"}[i%2], 4))
		want[name] = []string{"plain", "threads 8"}[i%2]
	}
	a.add(testVariant("large", "xl", threads(8), ""))
	defer startWithVariants(t, a)()
	a.add(testDaemonSet("logs"))
	settled(t, a.fakeAPI, "logs", 4)
	before := wantDaemons(t, a.fakeAPI, want)
	a.add(testVariant("another", "xl", threads(2), ""))
	a.add(testVariant("small", "s", "", "node.allocatable.nothing"))
	says := func(name, condition string, status metav1.ConditionStatus, words ...string) {
		t.Helper()
		eventually(t, func() string {
			a.mu.Lock()
			defer a.mu.Unlock()
			v, err := get[*v1alpha1.DaemonSetVariant](a.fakeAPI, kindVariant, "default", name)
			if err != nil {
				return err.Error()
			}
			c := meta.FindStatusCondition(v.Status.Conditions, condition)
			if c == nil || c.Status != status {
				return fmt.Sprintf("%s of %s is %+v", condition, name, c)
			}
			for _, w := range words {
				if !strings.Contains(c.Message, w) {
					return fmt.Sprintf("%s of %s says %q, want %q", condition, name, c.Message, w)
				}
			}
			return ""
		})
	}
	says("large", v1alpha1.VariantConflict, metav1.ConditionTrue, "DaemonSet logs on 2 nodes", "another, large")
	says("another", v1alpha1.VariantConflict, metav1.ConditionTrue, "another, large")
	says("small", v1alpha1.VariantApplies, metav1.ConditionFalse, "DaemonSet logs on 2 nodes, such as n0", "no such key: nothing")
	if got := changed(before, quiet(t, a.fakeAPI)); len(got) > 0 {
		t.Errorf("%v are touched", got)
	}
	a.erase(kindVariant, "default", "small")
	edit(t, a.fakeAPI, "default", "another", func(v *v1alpha1.DaemonSetVariant) { v.Spec.Priority, v.Generation = 20, 2 })
	want["n1"], want["n3"] = "threads 2", "threads 2"
	wantDaemons(t, a.fakeAPI, want)
	says("large", v1alpha1.VariantConflict, metav1.ConditionFalse)
	says("another", v1alpha1.VariantApplies, metav1.ConditionTrue)
	eventually(t, func() string {
		a.mu.Lock()
		defer a.mu.Unlock()
		v, err := get[*v1alpha1.DaemonSetVariant](a.fakeAPI, kindVariant, "default", "another")
		if err != nil || v.Status.Nodes != 2 || v.Status.DaemonSets != 1 {
			return fmt.Sprintf("the status is %+v, %v", v.Status, err)
		}
		return ""
	})
}

// Without any variant a controller that knows of them writes the very same bytes as one that does not, and decides the
// same from the same.
func TestWithoutVariantsNothingDiffers(t *testing.T) {
	written := map[bool]string{}
	for _, knows := range []bool{false, true} {
		a := policyAPI{newFakeAPI(t), func() bool { return false }}
		var pods []string
		a.refuseCreate = func(p *corev1.Pod) error {
			p = p.DeepCopy()
			text, err := json.Marshal(p)
			pods = append(pods, string(text))
			return err
		}
		for i := range 5 {
			n := sizedNode(fmt.Sprint("n", i), "s", 4)
			n.UID = types.UID(n.Name)
			a.add(n)
		}
		ds := testDaemonSet("logs")
		ds.UID = "logs"
		// A pod says nothing of variants by what its template says.
		ds.Spec.Template.Annotations = map[string]string{variant.Annotation: `{"pod":"x","variant":"large"}`}
		var decided bytes.Buffer
		cfg := Config{Informers: a, Writer: a, Recorder: record.NewFakeRecorder(100000), Rollouts: a, Record: &decided}
		if knows {
			cfg.Variants = a
		}
		c, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		a.add(ds)
		settled(t, a.fakeAPI, "logs", 5)
		setImage(t, a.fakeAPI, "logs", "demo:v2")
		settled(t, a.fakeAPI, "logs", 5)
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		slices.Sort(pods)
		written[knows] = strings.Join(pods, "\n")
		if strings.Contains(decided.String(), "_") && strings.Contains(decided.String(), "drifted") {
			t.Error("decisions know of variants")
		}
		for _, r := range list[*appsv1.ControllerRevision](a.fakeAPI, kindRevision) {
			if r.Labels["everynode.io/variants"] != "" {
				t.Errorf("%s is stored", r.Name)
			}
		}
	}
	if written[true] != written[false] || written[true] == "" {
		t.Errorf("pods are\n%s\nwithout knowing of variants\n%s", written[true], written[false])
	}
}

// What the pods of each variant request is counted, computed amounts and others.
func TestWhatVariantsReserve(t *testing.T) {
	a := policyAPI{newFakeAPI(t), func() bool { return false }}
	for i, size := range []string{"s", "s", "xl"} {
		a.add(sizedNode(fmt.Sprint("n", i), size, 4))
	}
	registry := prometheus.NewRegistry()
	c, err := New(Config{Informers: a, Writer: a, Recorder: record.NewFakeRecorder(100000), Rollouts: a, Variants: a,
		Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	ds := testDaemonSet("logs")
	ds.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse("100m")}
	a.add(ds)
	a.add(testVariant("all", "", "", "quantity('160Mi')"))
	a.add(testVariant("large", "xl", threads(8), "quantity('1Gi')"))
	settled(t, a.fakeAPI, "logs", 3)
	want := map[string]float64{"all cpu": 0.2, "all memory": 320 << 20, "large cpu": 0.1, "large memory": 1 << 30}
	eventually(t, func() string {
		families, err := registry.Gather()
		if err != nil {
			return err.Error()
		}
		got := map[string]float64{}
		for _, f := range families {
			for _, m := range f.Metric {
				if l := m.Label; f.GetName() == "everynode_variant_requested" {
					got[l[3].GetValue()+" "+l[2].GetValue()] = m.GetGauge().GetValue()
				}
			}
		}
		if !maps.Equal(got, want) {
			return fmt.Sprintf("reserved are %v, want %v", got, want)
		}
		return ""
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
