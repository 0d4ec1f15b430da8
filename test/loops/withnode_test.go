package loops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/testenv"
)

// story is what a watcher of a namespace's pods is told, by node.
type story struct {
	watch watch.Interface
	told  map[string][]watch.Event
}

func follow(t *testing.T, env *testenv.Env) *story {
	t.Helper()
	w, err := env.Client.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return &story{w, map[string][]watch.Event{}}
}

// until reads on until the pods of so many nodes run.
func (s *story) until(t *testing.T, running int) {
	t.Helper()
	timeout := time.After(2 * time.Minute)
	for runs := map[types.UID]bool{}; len(runs) < running; {
		select {
		case <-timeout:
			t.Fatalf("%d pods run, want %d", len(runs), running)
		case e, ok := <-s.watch.ResultChan():
			p, isPod := e.Object.(*corev1.Pod)
			if !ok || !isPod {
				t.Fatalf("the watch ended with %+v", e)
			}
			node := targetOf(p)
			s.told[node] = append(s.told[node], e)
			if p.Status.Phase == corev1.PodRunning {
				runs[p.UID] = true
			}
		}
	}
}

// schedulerWorks waits until the scheduler does: a server is ready before.
func schedulerWorks(t *testing.T, env *testenv.Env) {
	t.Helper()
	probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "demo:v1"}}}}
	pods := env.Client.CoreV1().Pods("kube-public")
	env.Eventually("a pod is made", func(ctx context.Context) error {
		_, err := pods.Create(ctx, probe, metav1.CreateOptions{}) // the namespace's account comes by and by
		return err
	})
	env.Eventually("it has a node", func(ctx context.Context) error {
		p, err := pods.Get(ctx, probe.Name, metav1.GetOptions{})
		if err == nil && p.Spec.NodeName == "" {
			err = errors.New("it has none")
		}
		return err
	})
}

// targetOf is the node that a pod is for.
func targetOf(p *corev1.Pod) string {
	return p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
}

// alike is a pod without what differs from pod to pod.
func alike(p *corev1.Pod) *corev1.Pod {
	p = p.DeepCopy()
	p.Name, p.UID, p.ResourceVersion, p.CreationTimestamp = "", "", "", metav1.Time{}
	p.OwnerReferences[0].UID = ""
	for i := range p.Status.Conditions {
		p.Status.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	for i := range p.Spec.Volumes {
		p.Spec.Volumes[i].Name = ""
	}
	p.Spec.Containers[0].VolumeMounts[0].Name = ""
	return p
}

// podEvents are the reasons of what is told of pods by events, each once and sorted.
func podEvents(t *testing.T, env *testenv.Env) []string {
	t.Helper()
	list, err := env.Client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range list.Items {
		if e.InvolvedObject.Kind == "Pod" {
			out = append(out, e.Source.Component+" "+e.Reason)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// TestDaemonPodsComeWithTheirNode: who watches sees each pod of a daemon come with its node, and it is the pod that is
// seen after a binding, with the same events and the same counts.
func TestDaemonPodsComeWithTheirNode(t *testing.T) {
	t.Parallel()
	const nodes = 3
	first := map[string]map[bool]*corev1.Pod{}
	events, counts := map[bool][]string{}, map[bool]string{}
	for _, later := range []bool{false, true} {
		metrics := prometheus.NewRegistry()
		env := testenv.Start(t, testenv.SimulatedNodes(nodes), func(o *config.Options) {
			o.BindDaemonsLater, o.Metrics = later, metrics
		})
		list, err := env.Client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range list.Items {
			_, err := env.Client.CoreV1().Nodes().Patch(t.Context(), n.Name, types.MergePatchType,
				[]byte(`{"metadata":{"labels":{"topology.kubernetes.io/zone":"z","topology.kubernetes.io/region":"r"}}}`),
				metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
		}
		schedulerWorks(t, env)
		s := follow(t, env)
		createDaemonSet(t, env, "logs")
		s.until(t, nodes)
		for node, told := range s.told {
			if first[node] == nil {
				first[node] = map[bool]*corev1.Pod{}
			}
			var types []watch.EventType
			for _, e := range told {
				types = append(types, e.Type)
				if p := e.Object.(*corev1.Pod); first[node][later] == nil && p.Spec.NodeName != "" {
					first[node][later] = p
				}
			}
			want := []watch.EventType{watch.Added, watch.Modified}
			if later {
				want = append(want, watch.Modified)
			}
			if !slices.Equal(types, want) {
				t.Errorf("later %v: of the pod on %s is told %v, want %v", later, node, types, want)
			}
		}
		env.Eventually("all events are there", func(context.Context) error {
			if events[later] = podEvents(t, env); !slices.Contains(events[later], "default-scheduler Scheduled") {
				return fmt.Errorf("there are %q", events[later])
			}
			return nil
		})
		counts[later] = count(t, metrics, "scheduler_schedule_attempts_total", "scheduler_pod_scheduling_attempts",
			"scheduler_scheduling_attempt_duration_seconds", "scheduler_scheduling_algorithm_duration_seconds",
			"scheduler_pod_scheduling_sli_duration_seconds", "daemonset_controller_pods_created_total")
		want := fmt.Sprintf("daemonset_controller_pods_created_with_node_total %d\n", nodes)
		if later {
			want = ""
		}
		if got := count(t, metrics, "daemonset_controller_pods_created_with_node_total",
			"daemonset_controller_pods_left_to_scheduler_total"); got != want {
			t.Errorf("later %v: counted is %q, want %q", later, got, want)
		}
		env.Stop()
	}
	if len(first) != nodes {
		t.Errorf("there were pods on %d nodes", len(first))
	}
	for node, p := range first {
		if p[false].Labels[corev1.LabelTopologyZone] != "z" || p[false].CreationTimestamp.IsZero() {
			t.Errorf("%s: its metadata is %+v", node, p[false].ObjectMeta)
		}
		if diff := cmp.Diff(alike(p[true]), alike(p[false])); diff != "" {
			t.Errorf("%s: pods differ (-bound later, +created with the node):\n%s", node, diff)
		}
	}
	if !slices.Equal(events[false], events[true]) {
		t.Errorf("the events are %q, and %q of pods that are bound later", events[false], events[true])
	}
	if counts[false] != counts[true] || !strings.Contains(counts[true], fmt.Sprint("result=scheduled ", nodes+1)) {
		t.Errorf("counted is\n%s, and of pods that are bound later\n%s", counts[false], counts[true])
	}
}

// count renders the numbers of those families that are not 0.
func count(t *testing.T, registry *prometheus.Registry, families ...string) string {
	t.Helper()
	all, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, f := range all {
		if !slices.Contains(families, f.GetName()) {
			continue
		}
		for _, m := range f.GetMetric() {
			n := m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			if n == 0 {
				continue
			}
			out.WriteString(f.GetName())
			for _, l := range m.GetLabel() {
				fmt.Fprintf(&out, " %s=%s", l.GetName(), l.GetValue())
			}
			fmt.Fprintf(&out, " %v\n", n)
		}
	}
	return out.String()
}

// TestDaemonPodsThatAreBoundLater: who has to wait for somebody, or for room, comes without a node as ever, and how many
// do so, and why, can be read.
func TestDaemonPodsThatAreBoundLater(t *testing.T) {
	t.Parallel()
	metrics := prometheus.NewRegistry()
	env := testenv.Start(t, testenv.SimulatedNodes(1), func(o *config.Options) { o.Metrics = metrics })
	ctx := t.Context()
	schedulerWorks(t, env)
	left := func(reason string) string {
		return count(t, metrics, "daemonset_controller_pods_left_to_scheduler_total") + "want " + reason
	}
	cpu := func(amount string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}}
	}
	make := func(name string, edit func(*corev1.PodSpec)) {
		t.Helper()
		labels := map[string]string{"app": name}
		ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "demo:v1"}}}},
		}}
		edit(&ds.Spec.Template.Spec)
		_, err := env.Client.AppsV1().DaemonSets("default").Create(ctx, ds, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	// comes waits for a pod, and says where it is.
	comes := func(name string, there func(*corev1.Pod) error) {
		t.Helper()
		env.Eventually("the pod of "+name, func(ctx context.Context) error {
			list, err := env.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
			if err != nil || len(list.Items) != 1 {
				return fmt.Errorf("there are %d: %w", len(list.Items), err)
			}
			return there(&list.Items[0])
		})
	}
	pending := func(p *corev1.Pod) error {
		if p.Spec.NodeName != "" {
			t.Errorf("%s is on %s", p.Name, p.Spec.NodeName)
		}
		return nil
	}
	runs := func(p *corev1.Pod) error {
		if p.Status.Phase != corev1.PodRunning {
			return errors.New("it is " + string(p.Status.Phase))
		}
		return nil
	}
	counted := func(reason string) {
		t.Helper()
		env.Eventually("it is counted", func(context.Context) error {
			if got := left(reason); !strings.Contains(got, "reason="+reason+" 1\n") {
				return errors.New(got)
			}
			return nil
		})
	}

	make("theirs", func(s *corev1.PodSpec) { s.SchedulerName = "theirs" })
	comes("theirs", pending)
	counted("other-scheduler")

	make("claim", func(s *corev1.PodSpec) {
		s.ResourceClaims = []corev1.PodResourceClaim{{Name: "d", ResourceClaimName: new(string)}}
		*s.ResourceClaims[0].ResourceClaimName = "d"
	})
	comes("claim", pending)
	counted("resource-claims")

	make("huge", func(s *corev1.PodSpec) { s.Containers[0].Resources = cpu("1000") })
	comes("huge", func(p *corev1.Pod) error {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable {
				return pending(p)
			}
		}
		return errors.New("nobody says why it waits")
	})
	counted("no-room")

	// What has to make room is not there at once, and makes it as ever.
	_, err := env.Client.SchedulingV1().PriorityClasses().Create(ctx,
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node, err := env.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := node.Items[0].Status.Allocatable.Cpu().String()
	make("large", func(s *corev1.PodSpec) { s.Containers[0].Resources = cpu(all) })
	comes("large", runs)
	if got := count(t, metrics, "daemonset_controller_pods_created_with_node_total"); !strings.HasSuffix(got, " 1\n") {
		t.Errorf("counted is %q", got)
	}
	make("important", func(s *corev1.PodSpec) {
		s.PriorityClassName, s.Containers[0].Resources = "high", cpu(all)
	})
	comes("important", runs)

	// Whoever wants to hear of bindings does.
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "bindings"},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/binding"}}},
			}}},
			Validations: []admissionv1.Validation{{Expression: "!request.name.startsWith('heard-')", Message: "not this one"}},
		}}
	_, err = env.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(ctx, policy, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = env.Client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(ctx,
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "bindings"},
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "bindings",
				ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "heard-probe"}, Spec: corev1.PodSpec{SchedulerName: "theirs",
		Containers: []corev1.Container{{Name: "c", Image: "demo:v1"}}}}
	if _, err := env.Client.CoreV1().Pods("default").Create(ctx, probe, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually("the policy is in force", func(ctx context.Context) error {
		err := env.Client.CoreV1().Pods("default").Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: probe.Name},
			Target: corev1.ObjectReference{Name: "nowhere"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), "not this one") {
			return fmt.Errorf("the binding was answered with %w", err)
		}
		return nil
	})
	make("heard", func(*corev1.PodSpec) {})
	comes("heard", func(p *corev1.Pod) error {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && strings.Contains(c.Message, "not this one") {
				return pending(p)
			}
		}
		return errors.New("nobody says why it waits")
	})
	counted("bindings-watched")
}

// TestControlPlaneEndsWhilePodsAreCreated: whoever takes over makes the pods that are missing and no other, and room that
// was kept by the one before is free.
func TestControlPlaneEndsWhilePodsAreCreated(t *testing.T) {
	t.Parallel()
	const nodes = 20
	env := testenv.Start(t, testenv.SimulatedNodes(nodes))
	s := follow(t, env)
	createDaemonSet(t, env, "logs")
	s.until(t, 2)
	env.Restart()
	daemonSetSettles(t, env, nodes)
	on := map[string]int{}
	for _, node := range daemonPods(t, env) {
		on[node]++
	}
	for node, n := range on {
		if n != 1 {
			t.Errorf("%d pods are on %s", n, node)
		}
	}
	list, err := env.Client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	full := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "full"}, Spec: corev1.PodSpec{
		NodeSelector: map[string]string{corev1.LabelHostname: list.Items[0].Labels[corev1.LabelHostname]},
		Containers: []corev1.Container{{Name: "c", Image: "demo:v1", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: *list.Items[0].Status.Allocatable.Cpu()}}}},
	}}
	if _, err := env.Client.CoreV1().Pods("default").Create(t.Context(), full, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually("a pod that fills what is left of a node", func(ctx context.Context) error {
		p, err := env.Client.CoreV1().Pods("default").Get(ctx, "full", metav1.GetOptions{})
		if err == nil && p.Spec.NodeName == "" {
			err = errors.New("it waits")
		}
		return err
	})
}
