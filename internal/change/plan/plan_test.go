package plan

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/change/survey/surveytest"
	"github.com/everynode/everynode/internal/change/variant/resizing"
)

// golden compares with a file of testdata. Where a step waits for another one, the line may be wide.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	surveytest.Golden(t, name, got, func(line string) bool { return strings.Contains(line, "  after ") })
}

const waves = `
waves:
- {name: canary, nodes: {matchLabels: {canary: "yes"}}, soak: 10m, approval: Manual}
- {name: zones, each: zone, maxUnavailable: 50%, soak: 5m}
domains:
- {key: rack, maxUnavailable: 1}
`

// cluster has ten nodes of two zones and five racks with a DaemonSet's old revision; one is dead, one is full, one has no
// label for what is new.
func cluster(t *testing.T) (*surveytest.World, *appsv1.DaemonSet) {
	w := surveytest.New(t)
	ds, revisions := w.DaemonSet("log-agent", "example.com/agent:1.3", "example.com/agent:1.4")
	name := func(i int) string { return "node-" + string(rune('0'+i)) }
	for i := range 10 {
		edits := []func(*corev1.Node){
			surveytest.Label("zone", []string{"a", "b"}[i%2]), surveytest.Label("rack", []string{"r1", "r2", "r3", "r4", "r5"}[i%5]),
		}
		if i == 0 {
			edits = append(edits, surveytest.Label("canary", "yes"))
		}
		if i == 9 {
			edits = append(edits, surveytest.Silent)
		}
		w.Node(name(i), edits...)
		w.Pod(ds, name(i), revisions[1], surveytest.ReadyAfter(20*time.Second))
	}
	w.Other("node-3")
	w.Node("node-db", surveytest.Tainted)
	return w, ds
}

func forecast(t *testing.T, w *surveytest.World, old, new *appsv1.DaemonSet) *Forecast {
	t.Helper()
	f, err := Make(survey.New(w.Objects), old, new)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func edited(ds *appsv1.DaemonSet, edits ...func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
	out := ds.DeepCopy()
	out.Generation++
	for _, edit := range edits {
		edit(out)
	}
	return out
}

func bigger(ds *appsv1.DaemonSet) {
	c := &ds.Spec.Template.Spec.Containers[0]
	c.Image = "example.com/agent:1.5"
	c.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("400Mi")}
	c.Env = []corev1.EnvVar{{Name: "MODE", Value: "fast"}}
	c.Ports = []corev1.ContainerPort{{Name: "metrics", ContainerPort: 9100, HostPort: 9100}}
}

func newer(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.Containers[0].Image = "example.com/agent:1.6" }

func TestForecasts(t *testing.T) {
	var out bytes.Buffer
	show := func(title string, f *Forecast) *Forecast {
		out.WriteString("# " + title + "\n")
		f.Write(&out)
		out.WriteString("\n")
		return f
	}
	w, ds := cluster(t)
	show("nothing", forecast(t, w, ds, edited(ds)))
	show("without a policy, and not all have room", forecast(t, w, ds, edited(ds, bigger)))
	show("without a policy", forecast(t, w, ds, edited(ds, newer)))
	show("the revision of before", forecast(t, w, ds, edited(ds, func(d *appsv1.DaemonSet) { d.Spec.Template.Spec.Containers[0].Image = "example.com/agent:1.3" })))
	show("one node leaves, another comes", forecast(t, w, ds, edited(ds, func(d *appsv1.DaemonSet) {
		d.Spec.Template.Spec.NodeSelector = map[string]string{"zone": "a"}
	})))
	show("a toleration more", forecast(t, w, ds, edited(ds, func(d *appsv1.DaemonSet) {
		d.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
	})))
	show("no pod is replaced", forecast(t, w, ds, edited(ds, func(d *appsv1.DaemonSet) {
		three := intstr.FromInt32(3)
		d.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = &three
		d.Labels["team"] = "ops"
	})))
	show("when somebody deletes the pods", forecast(t, w, ds, edited(ds, bigger, func(d *appsv1.DaemonSet) {
		d.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
	})))
	show("with surge", forecast(t, w, ds, edited(ds, func(d *appsv1.DaemonSet) {
		none, two := intstr.FromInt32(0), intstr.FromInt32(2)
		d.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &none, MaxSurge: &two}
		d.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")}
	})))
	fresh := edited(ds, func(d *appsv1.DaemonSet) { d.Name, d.UID = "other", "new" })
	show("a new DaemonSet", forecast(t, w, nil, fresh))
	golden(t, "plain.txt", out.Bytes())

	out.Reset()
	w.Policy("careful", waves)
	f := show("with a policy", forecast(t, w, ds, edited(ds, bigger)))
	encoded, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	show("with a policy, and a node selector that keeps half of the nodes", forecast(t, w, ds, edited(ds, func(d *appsv1.DaemonSet) {
		d.Spec.Template.Spec.NodeSelector = map[string]string{"zone": "a"}
	})))
	show("with a policy, and a node selector with a typo", forecast(t, w, ds, edited(ds, func(d *appsv1.DaemonSet) {
		d.Spec.Template.Spec.NodeSelector = map[string]string{"zone": "A"}
	})))
	canary := w.Objects.Policies
	for _, add := range []struct{ title, policy string }{
		{"an automatic canary that only loses the daemon", "waves: [{name: first, nodes: {matchLabels: {zone: b}}, soak: 1m}]"},
		{"an automatic canary of which one node keeps it", "waves: [{name: first, count: 7, soak: 1m}]"},
		{"a canary behind one that shows that it works", "waves: [{name: first, nodes: {matchLabels: {canary: \"yes\"}}}, {name: second, nodes: {matchLabels: {zone: b}}}]"},
		{"a canary that is out of order, with all of a zone", "waves: [{name: first, each: zone}]"},
	} {
		w.Objects.Policies = nil
		w.Policy("careful", add.policy)
		show(add.title, forecast(t, w, ds, edited(ds, func(d *appsv1.DaemonSet) {
			d.Spec.Template.Spec.NodeSelector = map[string]string{"zone": "a"}
		})))
	}
	w.Objects.Policies = nil
	w.Policy("careful", "pace: {nodesPerMinute: 5}")
	show("without a canary", forecast(t, w, ds, edited(ds, func(d *appsv1.DaemonSet) {
		d.Spec.Template.Spec.NodeSelector = map[string]string{"zone": "A"}
	})))
	w.Objects.Policies = nil
	w.Policy("careful", "waves: [{name: first, nodes: {matchLabels: {rack: r2}}}]")
	half := edited(ds, func(d *appsv1.DaemonSet) { d.Spec.Template.Spec.NodeSelector = map[string]string{"zone": "a"} })
	moved := slices.IndexFunc(w.Objects.Pods, func(p *corev1.Pod) bool { return p.Spec.NodeName == "node-6" })
	was := w.Objects.Pods[moved].Labels[appsv1.ControllerRevisionHashLabelKey]
	w.Objects.Pods[moved].Labels[appsv1.ControllerRevisionHashLabelKey] = forecastRevision(t, w, half)
	show("a canary of which one node has it already", forecast(t, w, ds, half))
	w.Objects.Pods[moved].Labels[appsv1.ControllerRevisionHashLabelKey] = was
	w.Objects.Policies = nil
	w.Policy("careful", "waves: [{name: first, nodes: {matchExpressions: [{key: zone, operator: DoesNotExist}]}}]")
	show("a canary without room for its first daemon", forecast(t, w, ds, edited(ds, func(d *appsv1.DaemonSet) {
		d.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
		d.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100")}
	})))
	w.Objects.Policies = nil
	w.Policy("careful", "selector: {matchLabels: {tier: agent}}")
	ds.Labels["tier"] = "agent"
	w.Rollout(ds, v1alpha1.DaemonSetRolloutStatus{StableRevision: was, TargetRevision: was, Phase: v1alpha1.PhaseComplete, DaemonSetGeneration: ds.Generation})
	out1, out2 := edited(ds, bigger), edited(ds)
	delete(out1.Labels, "tier")
	delete(out2.Labels, "tier")
	show("out of the policy, and changed", forecast(t, w, ds, out1))
	show("out of the policy", forecast(t, w, ds, out2))
	w.Objects.Policies = canary
	w.Objects.Nodes[1].Status.Images = []corev1.ContainerImage{{Names: []string{"example.com/agent:1.5"}}}
	new := edited(ds, bigger)
	hash := forecastRevision(t, w, new)
	w.Rollout(ds, v1alpha1.DaemonSetRolloutStatus{StableRevision: was, TargetRevision: was, FailedRevisions: []v1alpha1.FailedRevision{
		{Revision: hash, Why: "failed on 3 of 3 nodes", Action: v1alpha1.FailureRollback, Time: surveytest.Ago(time.Hour)},
	}}).Spec.Paused = true
	show("a revision that has failed before, paused", forecast(t, w, ds, new))
	status := &w.Objects.Rollouts[0].Status
	*status = v1alpha1.DaemonSetRolloutStatus{StableRevision: was, TargetRevision: was, EarlierFailures: []string{hash}, ForgottenFailures: 3}
	show("a revision that failed long ago", forecast(t, w, ds, new))
	status.EarlierFailures[0] = "another"
	show("a revision that is new, when many have failed, paused", forecast(t, w, ds, edited(ds, newer)))
	w.Objects.Rollouts[0].Spec.Paused = false
	*status = v1alpha1.DaemonSetRolloutStatus{TargetRevision: "none"}
	show("no revision is stable yet", forecast(t, w, ds, edited(ds, newer)))
	status.TargetRevision = was
	if f := forecast(t, w, ds, edited(ds, newer)); len(f.Steps) < 2 {
		t.Errorf("most nodes run the first revision, and the next goes in %d steps", len(f.Steps))
	}
	show("a new DaemonSet with a policy", forecast(t, w, nil, fresh))
	*status = v1alpha1.DaemonSetRolloutStatus{StableRevision: was, TargetRevision: was}
	for _, add := range []struct {
		title, policy string
		edit          func(*appsv1.DaemonSet)
	}{
		{"a rack with a node without room", "waves: [{name: first, nodes: {matchLabels: {zone: b}}}]\ndomains: [{key: rack, maxUnavailable: 1}]\nfailure: {max: 100%, min: 100}", bigger},
		{"pods take longer than they may", "failure: {startDeadline: 10s, then: Rollback}", newer},
		{"a policy that cannot be followed", "windows: [{from: \"09:00\", to: \"16:00\", timeZone: Mars/North}]", newer},
		{"outside a window", "windows: [{from: \"22:00\", to: \"23:00\"}]\npace: {nodesPerMinute: 1}", newer},
		{"more nodes out of order than may be", "nodeFaults: {max: 0}", newer},
	} {
		w.Objects.Policies = nil
		w.Policy("careful", add.policy)
		show(add.title, forecast(t, w, ds, edited(ds, add.edit)))
	}
	golden(t, "policy.txt", out.Bytes())
	golden(t, "policy.json", append(encoded, '\n'))
}

func forecastRevision(t *testing.T, w *surveytest.World, ds *appsv1.DaemonSet) string {
	t.Helper()
	set, err := survey.New(w.Objects).Set(ds)
	if err != nil {
		t.Fatal(err)
	}
	return set.Revision
}

// TestPlanChangesNothing: what it is told stays as it was.
func TestPlanChangesNothing(t *testing.T) {
	w, ds := cluster(t)
	before, err := json.Marshal(w.Objects.Pods)
	if err != nil {
		t.Fatal(err)
	}
	new := edited(ds, bigger)
	first := forecast(t, w, ds, new)
	after, err := json.Marshal(w.Objects.Pods)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, after) {
		t.Error("the pods are others than before")
	}
	var a, b bytes.Buffer
	first.Write(&a)
	forecast(t, w, ds, new).Write(&b)
	if a.String() != b.String() {
		t.Errorf("the second forecast is\n%s\nand the first was\n%s", b.String(), a.String())
	}
}

// TestRoomOnceTheOldPodHasLeft: without surge the next pod has the room of the one before it, with surge it needs its own.
func TestRoomOnceTheOldPodHasLeft(t *testing.T) {
	w, ds := cluster(t)
	cpu := func(c *corev1.Container, amount string) {
		c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}
	}
	for _, p := range w.Objects.Pods {
		if metav1.IsControlledBy(p, ds) {
			cpu(&p.Spec.Containers[0], "1500m") // of 2
		}
	}
	next := func(d *appsv1.DaemonSet) { cpu(&d.Spec.Template.Spec.Containers[0], "1600m") }
	surge := func(d *appsv1.DaemonSet) {
		none, ten := intstr.FromInt32(0), intstr.FromInt32(10)
		d.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &none, MaxSurge: &ten}
	}
	if f := forecast(t, w, ds, edited(ds, next)); f.Nodes.Change != 9 || f.Nodes.NoRoom != 0 {
		t.Errorf("without surge: %s", f.Nodes)
	}
	if f := forecast(t, w, ds, edited(ds, next, surge)); f.Nodes.Change != 9 || f.Nodes.NoRoom != 9 {
		t.Errorf("with surge: %s", f.Nodes)
	}
}

// TestDomainsCountAllTheirNodes: a share of a domain is one of all its nodes, not of those alone that are still to change.
func TestDomainsCountAllTheirNodes(t *testing.T) {
	w, ds := cluster(t)
	w.Policy("careful", "waves: [{name: zones, each: zone, maxUnavailable: 100%}]\ndomains: [{key: zone, maxUnavailable: 40%}]")
	new := edited(ds, newer)
	for _, p := range w.Objects.Pods {
		if slices.Contains([]string{"node-0", "node-2", "node-4"}, p.Spec.NodeName) {
			p.Labels[appsv1.ControllerRevisionHashLabelKey] = forecastRevision(t, w, new)
		}
	}
	if f := forecast(t, w, ds, new); f.Steps[0].Name != "zones/a" || f.Steps[0].Nodes != 2 || f.Steps[0].AtOnce != 2 {
		t.Errorf("the first step is %+v", f.Steps[0])
	}
}

// TestEstimate: batches take as long as pods took to start and are to be ready for, and the last one begins when the pace
// allows it.
func TestEstimate(t *testing.T) {
	w, ds := cluster(t)
	for _, p := range w.Objects.Pods {
		if metav1.IsControlledBy(p, ds) {
			surveytest.ReadyAfter(2 * time.Second)(p)
		}
	}
	new := edited(ds, newer, func(d *appsv1.DaemonSet) { d.Spec.MinReadySeconds = 5 })
	for policy, want := range map[string]time.Duration{
		"waves: [{name: all, percent: 100, maxUnavailable: 100%}]":                            7 * time.Second,
		"waves: [{name: all, percent: 100, maxUnavailable: 3}]":                               3 * 7 * time.Second,
		"waves: [{name: all, percent: 100, maxUnavailable: 3}]\npace: {nodesPerMinute: 6}":    80*time.Second + 7*time.Second,
		"waves: [{name: all, percent: 100, maxUnavailable: 3}]\npace: {nodesPerMinute: 6000}": 3 * 7 * time.Second,
	} {
		w.Objects.Policies = nil
		w.Policy("careful", policy)
		if e := forecast(t, w, ds, new).Estimate; e == nil || e.EachBatch != 7*time.Second || e.Changing.Round(time.Second) != want {
			t.Errorf("%s: %+v, want %s", policy, e, want)
		}
	}
}

// A pod that waited for room for an hour did not take that long to start.
func TestEstimateOfPodsThatWaitedForRoom(t *testing.T) {
	w, ds := cluster(t)
	for _, p := range w.Objects.Pods {
		if metav1.IsControlledBy(p, ds) {
			surveytest.ReadyAfter(time.Hour + 3*time.Second)(p)
			condition(p, corev1.PodScheduled, corev1.ConditionTrue, p.CreationTimestamp.Add(time.Hour), "")
		}
	}
	if e := forecast(t, w, ds, edited(ds, newer)).Estimate; e == nil || e.EachBatch != 3*time.Second {
		t.Errorf("%+v", e)
	}
}

// Since when a pod is ready that was restarted in place says nothing of how long its start took: that it was given other
// amounts does.
func TestEstimateOfPodsThatWereRestarted(t *testing.T) {
	w, ds := cluster(t)
	for i, p := range w.Objects.Pods {
		if !metav1.IsControlledBy(p, ds) {
			continue
		}
		surveytest.ReadyAfter(20 * time.Hour)(p)
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "agent", RestartCount: 3}}
		if i%2 == 0 {
			record := resizing.Record{Pod: p.Name, At: p.CreationTimestamp.Add(20*time.Hour - 4*time.Second),
				RestartsBy: map[string]int32{"agent": 3}}
			text, err := record.Text()
			if err != nil {
				t.Fatal(err)
			}
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, resizing.Annotation, text)
		}
	}
	if e := forecast(t, w, ds, edited(ds, newer)).Estimate; e == nil || e.EachBatch != 4*time.Second {
		t.Errorf("%+v", e)
	}
	for _, p := range w.Objects.Pods {
		delete(p.Annotations, resizing.Annotation)
	}
	if e := forecast(t, w, ds, edited(ds, newer)).Estimate; e != nil {
		t.Errorf("nothing tells how long a start takes, and it is %+v", e)
	}
}

// TestImagesThatAreNew: also those of volumes and init containers, on all nodes that get a pod, also their first one.
func TestImagesThatAreNew(t *testing.T) {
	w, ds := cluster(t)
	w.Objects.Nodes[len(w.Objects.Nodes)-1].Status.Images = []corev1.ContainerImage{{Names: []string{"docker.io/library/init:1"}}} // of node-db
	f := forecast(t, w, ds, edited(ds, func(d *appsv1.DaemonSet) {
		d.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "init:1"}}
		d.Spec.Template.Spec.Volumes = append(d.Spec.Template.Spec.Volumes, corev1.Volume{Name: "rules",
			VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "rules:1"}}})
		d.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
	}))
	if want := []Image{{Image: "rules:1", Of: 10}, {Image: "init:1", On: 1, Of: 10}}; !slices.Equal(f.Images, want) {
		t.Errorf("images are %+v, want %+v", f.Images, want)
	}
}
