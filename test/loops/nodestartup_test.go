package loops

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/objects/nodestartup"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/testenv"
)

// joining is a control plane to which nodes come that the test itself acts for.
type joining struct {
	*testenv.Env
	t   *testing.T
	own *everynode.Client
	// sick are the daemons, as DAEMONSET/NODE, that do not become ready.
	mu   sync.Mutex
	sick map[string]bool
}

func startJoining(t *testing.T, change ...func(*config.Options)) *joining {
	t.Helper()
	env := testenv.Start(t, change...)
	own, err := everynode.NewForConfig(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	j := &joining{Env: env, t: t, own: own, sick: map[string]bool{}}
	pods, err := env.Client.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var acting sync.WaitGroup
	acting.Go(func() { j.act(pods) })
	ctx, cancel := context.WithCancel(context.Background())
	acting.Go(func() { j.beat(ctx) })
	t.Cleanup(func() { cancel(); pods.Stop(); acting.Wait() })
	return j
}

// beat has all nodes say from time to time that they are there. A test may take longer than they may be silent.
func (j *joining) beat(ctx context.Context) {
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		nodes, err := j.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			continue // the next beat tries again
		}
		body := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","lastHeartbeatTime":%q}]}}`,
			time.Now().UTC().Format(time.RFC3339))
		for _, n := range nodes.Items {
			_, err := j.Client.CoreV1().Nodes().Patch(ctx, n.Name, types.StrategicMergePatchType, []byte(body),
				metav1.PatchOptions{}, "status")
			if err != nil && ctx.Err() == nil {
				j.t.Logf("node %s: %v", n.Name, err)
			}
		}
	}
}

// act is what the nodes do: they start pods that are bound to them, resize them, and end those that are deleted.
func (j *joining) act(pods watch.Interface) {
	for e := range pods.ResultChan() {
		p, ok := e.Object.(*corev1.Pod)
		if !ok || p.Spec.NodeName == "" || e.Type == watch.Deleted {
			continue
		}
		j.serve(p)
	}
}

func (j *joining) serve(p *corev1.Pod) {
	ctx := context.Background()
	if p.DeletionTimestamp != nil {
		now := int64(0)
		err := j.Client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now,
			Preconditions: &metav1.Preconditions{UID: &p.UID}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			j.t.Logf("end pod %s: %v", p.Name, err)
		}
		return
	}
	j.mu.Lock()
	sick := j.sick[p.Labels["app"]+"/"+p.Spec.NodeName]
	j.mu.Unlock()
	// A running pod that is given other amounts has them at once: the node says for which generation it speaks.
	if sick || p.Status.Phase == corev1.PodRunning && p.Status.ObservedGeneration == p.Generation {
		return
	}
	body := fmt.Sprintf(`{"status":{"observedGeneration":%d,"phase":"Running",`+
		`"conditions":[{"type":"Ready","status":"True","lastTransitionTime":%q}]}}`,
		p.Generation, time.Now().UTC().Format(time.RFC3339))
	_, err := j.Client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, []byte(body),
		metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		j.t.Logf("report pod %s: %v", p.Name, err)
	}
}

// heal has a daemon become ready on a node after all.
func (j *joining) heal(app, node string) {
	j.t.Helper()
	j.mu.Lock()
	delete(j.sick, app+"/"+node)
	j.mu.Unlock()
	for _, p := range j.podsOn(node) {
		if p.Labels["app"] == app {
			j.serve(&p)
		}
	}
}

// join adds a node that is ready and large.
func (j *joining) join(name string) *corev1.Node {
	j.t.Helper()
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("8Gi"),
		corev1.ResourcePods: resource.MustParse("100"),
	}
	n, err := j.Client.CoreV1().Nodes().Create(j.t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status: corev1.NodeStatus{Capacity: room, Allocatable: room, Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		j.t.Fatal(err)
	}
	return n
}

func (j *joining) daemonSet(name string) {
	j.t.Helper()
	labels := map[string]string{"app": name}
	_, err := j.Client.AppsV1().DaemonSets("default").Create(j.t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "demo:v1"}}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		j.t.Fatal(err)
	}
}

func (j *joining) startup(name string, groups ...v1alpha1.StartupGroup) {
	j.t.Helper()
	_, err := j.own.NodeStartups().Create(j.t.Context(), &v1alpha1.NodeStartup{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodeStartupSpec{Groups: groups},
	}, metav1.CreateOptions{})
	if err != nil {
		j.t.Fatal(err)
	}
}

func groupOf(names ...string) (g v1alpha1.StartupGroup) {
	for _, name := range names {
		g.DaemonSets = append(g.DaemonSets, v1alpha1.StartupDaemonSet{Namespace: "default", Name: name})
	}
	return g
}

func (j *joining) podsOn(node string) []corev1.Pod {
	j.t.Helper()
	pods, err := j.Client.CoreV1().Pods("").List(j.t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		j.t.Fatal(err)
	}
	return pods.Items
}

// gate waits until the node's gate has the value; "" for none.
func (j *joining) gate(node, value string) {
	j.t.Helper()
	j.Eventually(node+" has the gate ["+value+"]", func(ctx context.Context) error {
		n, err := j.Client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		have := ""
		if t := nodestartup.TaintOf(n.Spec.Taints); t != nil {
			have = t.Value
		}
		if have != value {
			return fmt.Errorf("it is [%s]", have)
		}
		return nil
	})
}

// ordinary makes pods that nothing but a gate keeps off a node.
func (j *joining) ordinary(n int) {
	j.t.Helper()
	for i := range n {
		_, err := j.Client.CoreV1().Pods("default").Create(j.t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("work-%d", i), Labels: map[string]string{"app": "work"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "demo:v1"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			j.t.Fatal(err)
		}
	}
}

// written is a version of an object.
type written struct {
	version int
	obj     metav1.Object
}

// history is all that was written of a kind, from the call on until the test ends.
func (j *joining) history(w watch.Interface) func() []written {
	var mu sync.Mutex
	var out []written
	var reading sync.WaitGroup
	reading.Go(func() {
		for e := range w.ResultChan() {
			m, err := meta.Accessor(e.Object)
			if err != nil {
				return // the end; what is missing then is missed by who judges
			}
			version, err := strconv.Atoi(m.GetResourceVersion())
			if err != nil {
				j.t.Errorf("read a version: %v", err)
				return
			}
			mu.Lock()
			out = append(out, written{version, m})
			mu.Unlock()
		}
	})
	j.t.Cleanup(func() { w.Stop(); reading.Wait() })
	return func() []written {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(out)
	}
}

// boundIn counts the ordinary pods in a history that have a node.
func boundIn(pods []written) int {
	names := map[string]bool{}
	for _, w := range pods {
		if p := w.obj.(*corev1.Pod); p.Labels["app"] == "work" && p.Spec.NodeName != "" {
			names[p.Name] = true
		}
	}
	return len(names)
}

// nothingEarly judges the history of all writes: no ordinary pod was bound to a node before the write that opened it,
// and of the daemons each was created after all of the group before were ready on that node.
func (j *joining) nothingEarly(nodes, pods []written, groups [][]string) {
	j.t.Helper()
	opened, seen := map[string]int{}, map[string]bool{}
	for _, w := range nodes {
		n := w.obj.(*corev1.Node)
		open := nodestartup.TaintOf(n.Spec.Taints) == nil
		if open && !seen[n.Name] {
			j.t.Errorf("node %s was created without its gate", n.Name)
		}
		seen[n.Name] = true
		if open && opened[n.Name] == 0 {
			opened[n.Name] = w.version
		}
	}
	created, ready := map[string]int{}, map[string]int{}
	for _, w := range pods {
		p := w.obj.(*corev1.Pod)
		app, node := p.Labels["app"], nodeOf(p)
		key := app + "/" + node
		if created[key] == 0 {
			created[key] = w.version
		}
		if ready[key] == 0 && p.Status.Phase == corev1.PodRunning {
			ready[key] = w.version
		}
		if app != "work" || p.Spec.NodeName == "" {
			continue
		}
		if at := opened[node]; at == 0 || w.version < at {
			j.t.Errorf("pod %s was bound to %s at %d; the node opened at %d", p.Name, node, w.version, at)
		}
	}
	for i := 1; i < len(groups); i++ {
		for node := range seen {
			for _, later := range groups[i] {
				for _, before := range groups[i-1] {
					at, need := created[later+"/"+node], ready[before+"/"+node]
					if at == 0 || need == 0 || at < need {
						j.t.Errorf("on %s, %s was created at %d and %s ready at %d", node, later, at, before, need)
					}
				}
			}
		}
	}
}

// nodeOf is the node that a pod is on or is made for.
func nodeOf(p *corev1.Pod) string {
	if p.Spec.NodeName != "" || p.Spec.Affinity == nil {
		return p.Spec.NodeName
	}
	terms := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return terms[0].MatchFields[0].Values[0]
}

// Nodes join while ordinary pods wait for room: none is placed on a node before the daemons are there, group by group.
func TestNodesOpenWhenTheirDaemonsAreReady(t *testing.T) {
	t.Parallel()
	j := startJoining(t)
	for _, name := range []string{"cni", "storage", "logs", "other"} {
		j.daemonSet(name)
	}
	groups := [][]string{{"cni", "storage"}, {"logs"}}
	j.startup("all", groupOf(groups[0]...), groupOf(groups[1]...))
	const ordinary = 20
	j.ordinary(ordinary)
	nodeWatch, err := j.Client.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	podWatch, err := j.Client.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	nodes, pods := j.history(nodeWatch), j.history(podWatch)
	const count = 10
	for i := range count {
		j.join(fmt.Sprintf("node-%d", i))
	}
	for i := range count {
		j.gate(fmt.Sprintf("node-%d", i), "")
	}
	j.Eventually("all pods are seen to be placed", func(context.Context) error {
		if n := boundIn(pods()); n != ordinary {
			return fmt.Errorf("of %d pods %d are", ordinary, n)
		}
		return nil
	})
	j.nothingEarly(nodes(), pods(), groups)
	for i := range count {
		j.others(fmt.Sprintf("node-%d", i))
	}
	j.Eventually("the status counts them", func(ctx context.Context) error {
		s, err := j.own.NodeStartups().Get(ctx, "all", metav1.GetOptions{})
		if err == nil && (s.Status.MatchedNodes != count || s.Status.OpenNodes != count || s.Status.StartingNodes != 0) {
			err = fmt.Errorf("it is %+v", s.Status)
		}
		return err
	})
}

// others checks that listed daemons alone tolerate the gate.
func (j *joining) others(node string) {
	j.t.Helper()
	for _, p := range j.podsOn(node) {
		tolerates := slices.ContainsFunc(p.Spec.Tolerations, func(t corev1.Toleration) bool {
			return t.Key == nodestartup.TaintKey
		})
		if listed := p.Labels["app"] != "work" && p.Labels["app"] != "other"; listed != tolerates {
			j.t.Errorf("pod %s tolerates the gate: %v", p.Name, tolerates)
		} else if group := p.Annotations[nodestartup.GroupAnnotation]; listed != (group != "") {
			j.t.Errorf("pod %s says that it is of group %q", p.Name, group)
		}
	}
}

// What fails on one node holds up no other, a timeout goes on without a daemon, and a NodeStartup that goes opens all.
func TestNodesThatWait(t *testing.T) {
	t.Parallel()
	j := startJoining(t)
	j.daemonSet("cni")
	j.daemonSet("logs")
	before := j.join("before")
	j.sick = map[string]bool{"cni/bad": true, "logs/late": true, "logs/worse": true}
	late := groupOf("logs")
	late.Timeout, late.Then = "2s", v1alpha1.ThenOpen
	j.startup("all", groupOf("cni"), late)
	for _, name := range []string{"bad", "good", "late"} {
		if taint := nodestartup.TaintOf(j.join(name).Spec.Taints); taint == nil || taint.Value != "all_1" {
			t.Fatalf("%s is created with the gate %v", name, taint)
		}
	}
	j.gate("good", "")
	j.gate("late", "")
	late0, err := j.Client.CoreV1().Nodes().Get(t.Context(), "late", metav1.GetOptions{})
	if err != nil || late0.Annotations[nodestartup.WithoutAnnotation] != "default/logs" {
		t.Errorf("the late node went on without %q, %v", late0.Annotations, err)
	}
	j.gate("bad", "all_1")
	for _, p := range j.podsOn("bad") {
		if p.Labels["app"] != "cni" {
			t.Errorf("pod %s runs on the node that waits for its first group", p.Name)
		}
	}
	if nodestartup.TaintOf(before.Spec.Taints) != nil {
		t.Error("a node that was there before has a gate")
	}

	// Nobody but the controller touches the gate.
	write := func(node, taints string) error {
		change := []byte(`{"spec":{"taints":[` + taints + `]}}`)
		_, err := j.Client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, change, metav1.PatchOptions{})
		return err
	}
	err = write("bad", `{"key":"everynode.io/starting","value":"all_2","effect":"NoSchedule"}`)
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "NodeStartup") {
		t.Errorf("an administrator who changes the gate gets: %v", err)
	}

	// A listed DaemonSet that is deleted is waited for: its absence is no reason to open.
	err = j.Client.AppsV1().DaemonSets("default").Delete(t.Context(), "cni", metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	j.Eventually("the status says that it is missing", func(ctx context.Context) error {
		s, err := j.own.NodeStartups().Get(ctx, "all", metav1.GetOptions{})
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(s.Status.Conditions, "DaemonSetsFound")
		if c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "default/cni") {
			return fmt.Errorf("it says %+v", c)
		}
		return nil
	})
	j.join("worse")
	j.gate("bad", "all_1")
	j.daemonSet("cni")
	j.heal("cni", "bad")
	j.gate("bad", "")

	// And one that goes opens all nodes.
	j.gate("worse", "")
	j.mu.Lock()
	j.sick["cni/stuck"] = true
	j.mu.Unlock()
	j.join("stuck")
	j.gate("stuck", "all_1")
	j.mu.Lock()
	j.sick["cni/opened"] = true
	j.mu.Unlock()
	j.join("opened")
	err = write("opened", "")
	if err != nil {
		t.Errorf("an administrator opens a node by hand: %v", err)
	}
	j.gate("opened", "")
	j.gate("stuck", "all_1")
	if err := j.own.NodeStartups().Delete(t.Context(), "all", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	j.gate("stuck", "")
	if nodestartup.TaintOf(j.join("after").Spec.Taints) != nil {
		t.Error("a node that joins after the NodeStartup went has a gate")
	}
}

// A machine that starts again closes its node in the write that says so. What its daemons were before does not count:
// each group has to come up once more, and the pods that are there stay.
func TestANodeIsClosedWhenItsMachineStartsAgain(t *testing.T) {
	t.Parallel()
	j := startJoining(t)
	j.daemonSet("cni")
	j.daemonSet("logs")
	j.startup("all", groupOf("cni"), groupOf("logs"))
	j.join("n")
	j.gate("n", "")
	report := func(boot string) *corev1.Node {
		t.Helper()
		n, err := j.Client.CoreV1().Nodes().Patch(t.Context(), "n", types.StrategicMergePatchType,
			[]byte(`{"status":{"nodeInfo":{"bootID":"`+boot+`"}}}`), metav1.PatchOptions{}, "status")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if taint := nodestartup.TaintOf(report("first").Spec.Taints); taint != nil {
		t.Fatalf("its first report closes it with %v", taint)
	}
	before := j.podsOn("n")
	j.Eventually("both daemons run", func(context.Context) error {
		if before = j.podsOn("n"); len(before) != 2 {
			return fmt.Errorf("there are %d pods", len(before))
		}
		return nil
	})
	if taint := nodestartup.TaintOf(report("second").Spec.Taints); taint == nil || taint.Value != "all_1" {
		t.Fatalf("the report that its machine has started again leaves it with %v", taint)
	}
	rise := func(app string) {
		t.Helper()
		for _, p := range j.podsOn("n") {
			if p.Labels["app"] != app {
				continue
			}
			at := time.Now().Add(2 * time.Second).UTC().Format(time.RFC3339)
			body := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"True","lastTransitionTime":%q}]}}`, at)
			_, err := j.Client.CoreV1().Pods(p.Namespace).Patch(t.Context(), p.Name, types.StrategicMergePatchType, []byte(body),
				metav1.PatchOptions{}, "status")
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	j.gate("n", "all_1")
	rise("cni")
	j.gate("n", "all_2")
	rise("logs")
	j.gate("n", "")
	for i, p := range j.podsOn("n") {
		if p.UID != before[i].UID || p.DeletionTimestamp != nil {
			t.Errorf("pod %s was replaced", before[i].Name)
		}
	}
	if taint := nodestartup.TaintOf(report("second").Spec.Taints); taint != nil {
		t.Errorf("the same report once more closes it with %v", taint)
	}
}
