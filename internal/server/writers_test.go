package server

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/insidedoor"
	"github.com/everynode/everynode/internal/controller/daemonset/executor"
	"github.com/everynode/everynode/internal/scheduler"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/server/writers"
	"github.com/everynode/everynode/internal/simulator"
)

// way is one way for the control loops to write.
type way struct {
	namespace string
	ds        executor.Writer
	sched     scheduler.Writer
	events    scheduler.EventSink
	sim       simulator.Writer
	objects   metadata.Interface
	// door is nil for the way of everybody.
	door   *insidedoor.Door
	inside writers.Inside
}

// through has a way lead through a door.
func (w *way) through(door *insidedoor.Door) {
	in := writers.Through(door)
	w.door, w.inside = door, in
	w.ds, w.sched, w.events = in.DaemonSets(w.ds), in.Scheduler(w.sched), in.SchedulerEvents(w.events)
	w.sim, w.objects = in.Simulator(w.sim), in.Collector(w.objects)
}

// collect deletes a pod as the garbage collector does.
func (w way) collect(ctx context.Context, name string, uid types.UID, policy metav1.DeletionPropagation) error {
	return w.objects.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(w.namespace).Delete(ctx, name,
		metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &policy,
		})
}

// ways starts a control plane and returns both ways to write to it.
func ways(t testing.TB, change ...func(*config.Options)) (client kubernetes.Interface, http, door way) {
	t.Helper()
	o := config.Defaults()
	o.DataDir, o.Listen, o.NoFsync = filepath.Join(t.TempDir(), "data"), []string{"127.0.0.1:0"}, true
	for _, c := range change {
		c(&o)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the control plane ended with: %v", err)
		}
	})
	select {
	case <-s.Ready():
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	if client, err = kubernetes.NewForConfig(s.ClientConfig()); err != nil {
		t.Fatal(err)
	}
	objects, err := metadata.NewForConfig(s.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	http = way{
		namespace: "by-http", ds: executor.NewWriter(client), sched: scheduler.NewWriter(client),
		events: scheduler.NewEventSink(client), sim: simulator.NewWriter(client), objects: objects,
	}
	door = http
	door.namespace = "by-door"
	door.through(s.api.InsideDoor())
	// Without its node a bound pod would be collected under the test's hands.
	if _, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, w := range []way{http, door} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
		if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		account := func(ctx context.Context) error {
			_, err := client.CoreV1().ServiceAccounts(w.namespace).Get(ctx, "default", metav1.GetOptions{})
			return err
		}
		eventually(t, "the namespace's service account", account)
	}
	return client, http, door
}

func eventually(t testing.TB, what string, check func(context.Context) error) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		err := check(t.Context())
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

func testPod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": "test"}},
		Spec: corev1.PodSpec{
			SchedulerName: "nobody",
			Containers: []corev1.Container{{Name: "main", Image: "demo:v1",
				Ports: []corev1.ContainerPort{{ContainerPort: 80}}}},
		},
	}
}

// TestInsideDoorStoresTheSame goes both ways step by step, through everything
// that a pod lives through, and compares what is stored and what is refused.
func TestInsideDoorStoresTheSame(t *testing.T) {
	t.Parallel()
	client, http, door := ways(t)
	ctx := t.Context()
	last := map[string]*corev1.Pod{}
	const dependentsFirst = "collect, dependents first"
	for _, step := range []struct {
		name, want string
		do         func(w way, p *corev1.Pod) error
	}{
		{"create", "done", func(w way, _ *corev1.Pod) error {
			_,
				err := w.ds.CreatePod(ctx, testPod(w.namespace, "p"))
			return err
		}},
		{"create again", "AlreadyExists", func(w way, _ *corev1.Pod) error {
			_,
				err := w.ds.CreatePod(ctx, testPod(w.namespace, "p"))
			return err
		}},
		{"create without containers", "Invalid", func(w way, _ *corev1.Pod) error {
			bad := testPod(w.namespace, "q")
			bad.Spec.Containers = nil
			_, err := w.ds.CreatePod(ctx, bad)
			return err
		}},
		{"create with an unknown priority class", "Forbidden", func(w way, _ *corev1.Pod) error {
			bad := testPod(w.namespace, "q")
			bad.Spec.PriorityClassName = "none"
			_, err := w.ds.CreatePod(ctx, bad)
			return err
		}},
		{"why another pod of the name waits", "done", func(w way, p *corev1.Pod) error {
			other := p.DeepCopy()
			other.UID = "other"
			err := w.sched.PatchStatus(ctx, other, waits("no room", nil))
			if apierrors.IsConflict(err) || apierrors.IsInvalid(err) { // by HTTP, as a change of the UID
				return nil
			}
			return fmt.Errorf("it is not refused: %w", err)
		}},
		{"why it waits", "done", func(w way, p *corev1.Pod) error {
			return w.sched.PatchStatus(ctx, p, waits("no room", ptr.To("node-1")))
		}},
		{"why it waits, in other words", "done", func(w way, p *corev1.Pod) error {
			status := waits("less room", ptr.To(""))
			status.Conditions = append(status.Conditions, corev1.PodCondition{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "Why", Message: "So"})
			return w.sched.PatchStatus(ctx, p, status)
		}},
		{"why it waits, in no words", "done", func(w way, p *corev1.Pod) error {
			return w.sched.PatchStatus(ctx, p, waits("", nil))
		}},
		{"why one waits that is not there", "NotFound", func(w way, _ *corev1.Pod) error {
			return w.sched.PatchStatus(ctx, testPod(w.namespace, "none"), waits("no room", nil))
		}},
		{"bind another pod of the name", "Conflict", func(w way, p *corev1.Pod) error {
			other := p.DeepCopy()
			other.UID = "other"
			return w.sched.Bind(ctx, other, scheduler.Chosen{Name: "node-1"})
		}},
		{"bind", "done", func(w way, p *corev1.Pod) error { return w.sched.Bind(ctx, p, scheduler.Chosen{Name: "node-1"}) }},
		{"bind again", "Conflict", func(w way, p *corev1.Pod) error { return w.sched.Bind(ctx, p, scheduler.Chosen{Name: "node-2"}) }},
		{"bind one that is not there", "NotFound", func(w way,
			_ *corev1.Pod) error {
			return w.sched.Bind(ctx, testPod(w.namespace, "none"), scheduler.Chosen{Name: "node-1"})
		}},
		{"status, and more that is not taken", "done", func(w way, p *corev1.Pod) error {
			changed := p.DeepCopy()
			changed.Status.Phase, changed.Status.PodIPs = corev1.PodRunning, []corev1.PodIP{{IP: "10.0.0.1"}}
			changed.Spec.Containers[0].Image, changed.Labels["app"] = "demo:v2", "other"
			_, err := w.sim.UpdatePodStatus(ctx, changed)
			return err
		}},
		{"status over a newer pod", "Conflict", func(w way, p *corev1.Pod) error {
			changed := p.DeepCopy()
			changed.ResourceVersion, changed.Status.Phase = "1", corev1.PodFailed
			_, err := w.sim.UpdatePodStatus(ctx, changed)
			return err
		}},
		{"invalid status", "Invalid", func(w way, p *corev1.Pod) error {
			changed := p.DeepCopy()
			changed.Status.PodIPs = []corev1.PodIP{{IP: "nowhere"}}
			_, err := w.sim.UpdatePodStatus(ctx, changed)
			return err
		}},
		{"status of one that is not there", "NotFound", func(w way, _ *corev1.Pod) error {
			_, err := w.sim.UpdatePodStatus(ctx, testPod(w.namespace, "none"))
			return err
		}},
		{"delete another pod of the name", "Conflict",
			func(w way, _ *corev1.Pod) error { return w.ds.DeletePod(ctx, w.namespace, "p", "other") }},
		{"delete", "done", func(w way, p *corev1.Pod) error { return w.ds.DeletePod(ctx, w.namespace, "p", p.UID) }},
		{"delete for good", "done", func(w way, p *corev1.Pod) error { return w.sim.DeletePod(ctx, p) }},
		{"delete what is gone", "NotFound", func(w way, p *corev1.Pod) error { return w.sim.DeletePod(ctx, p) }},
		{"create again", "done", func(w way, _ *corev1.Pod) error {
			_,
				err := w.ds.CreatePod(ctx, testPod(w.namespace, "p"))
			return err
		}},
		{"collect another pod of the name", "Conflict", func(w way, _ *corev1.Pod) error {
			return w.collect(ctx, "p", "other", metav1.DeletePropagationBackground)
		}},
		{dependentsFirst, "done", func(w way, p *corev1.Pod) error {
			return w.collect(ctx, "p", p.UID, metav1.DeletePropagationForeground)
		}},
	} {
		t.Run(step.name, func(t *testing.T) {
			errs, found := map[string]string{}, map[string]*corev1.Pod{}
			for _, w := range []way{http, door} {
				before := last[w.namespace].DeepCopy()
				errs[w.namespace] = outcome(step.do(w, before))
				if !cmp.Equal(before, last[w.namespace]) {
					t.Errorf("%s changed the object it was given", w.namespace)
				}
				p, err := client.CoreV1().Pods(w.namespace).Get(ctx, "p", metav1.GetOptions{})
				if step.name == dependentsFirst {
					p, err = nextState(t, client, before), nil
				}
				if err != nil && !apierrors.IsNotFound(err) {
					t.Fatal(err)
				}
				found[w.namespace] = comparable(p)
				if err == nil {
					last[w.namespace] = p
				}
			}
			if !strings.HasPrefix(errs[http.namespace], step.want) {
				t.Errorf("by HTTP the answer is %q, want %s", errs[http.namespace], step.want)
			}
			if diff := cmp.Diff(errs[http.namespace], errs[door.namespace]); diff != "" {
				t.Errorf("answers differ (-http +door):\n%s", diff)
			}
			if diff := cmp.Diff(found[http.namespace], found[door.namespace]); diff != "" {
				t.Errorf("stored pods differ (-http +door):\n%s", diff)
			}
		})
	}
}

// waits is what the scheduler says of a pod that waits.
func waits(message string, nominated *string) scheduler.StatusPatch {
	return scheduler.StatusPatch{NominatedNodeName: nominated, Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: message,
		LastTransitionTime: metav1.Now(),
	}}}
}

var varying = regexp.MustCompile(`by-(http|door)|[0-9a-f]{8}-[0-9a-f-]{27}`)

// outcome is an error without what must differ.
func outcome(err error) string {
	if err == nil {
		return "done"
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return "not an API error: " + err.Error()
	}
	s := status.Status()
	return string(s.Reason) + ": " + varying.ReplaceAllString(s.Message, "#")
}

// nextState is the pod as the first write after before left it, where the
// garbage collector takes it away at once.
func nextState(t *testing.T, client kubernetes.Interface, before *corev1.Pod) *corev1.Pod {
	t.Helper()
	events, err := client.CoreV1().Pods(before.Namespace).Watch(t.Context(), metav1.ListOptions{
		FieldSelector: "metadata.name=" + before.Name, ResourceVersion: before.ResourceVersion,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	select {
	case event := <-events.ResultChan():
		p, ok := event.Object.(*corev1.Pod)
		if !ok {
			t.Fatalf("watch pod %s/%s: %v", before.Namespace, before.Name, event.Object)
		}
		return p
	case <-time.After(time.Minute):
		t.Fatalf("no write to pod %s/%s was seen", before.Namespace, before.Name)
		return nil
	}
}

// comparable is a pod without what must differ.
func comparable(p *corev1.Pod) *corev1.Pod {
	out := p.DeepCopy()
	out.Namespace, out.UID, out.ResourceVersion, out.ManagedFields = "", types.UID(""), "", nil
	out.CreationTimestamp = metav1.Time{}
	if out.DeletionTimestamp != nil {
		out.DeletionTimestamp = &metav1.Time{}
	}
	for i := range out.Status.Conditions {
		out.Status.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	// The volume of the service account's token has a random name.
	for i := range out.Spec.Volumes {
		out.Spec.Volumes[i].Name = ""
	}
	for i := range out.Spec.Containers {
		for j := range out.Spec.Containers[i].VolumeMounts {
			out.Spec.Containers[i].VolumeMounts[j].Name = ""
		}
	}
	return out
}

// TestInsideDoorStoresTheSameOfDaemonSets writes the status of a DaemonSet both ways: over a newer one, over the newest,
// with what none may say, and of one that is gone.
func TestInsideDoorStoresTheSameOfDaemonSets(t *testing.T) {
	t.Parallel()
	client, http, door := ways(t, func(o *config.Options) { o.NoDaemonSetController = true })
	var stored []*appsv1.DaemonSet
	var answers []string
	for _, w := range []way{http, door} {
		labels, sets := map[string]string{"app": "test"}, client.AppsV1().DaemonSets(w.namespace)
		old, err := sets.Create(t.Context(), &appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Name: "set", Labels: labels},
			Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: testPod("", "").Spec}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		old.Spec.MinReadySeconds = 7
		now, err := sets.Update(t.Context(), old, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		good, gone := now.DeepCopy(), now.DeepCopy()
		good.Spec.MinReadySeconds, gone.Name = 9, "gone" // a status has nothing to say of the former
		good.Status = appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: 3, NumberReady: 2,
			Conditions: []appsv1.DaemonSetCondition{{Type: "Progressing", Status: corev1.ConditionTrue, Reason: "Because"}}}
		for _, ds := range []*appsv1.DaemonSet{old, good, nil, gone} {
			if ds == nil {
				ds = stored[len(stored)-1].DeepCopy()
				ds.Status.NumberReady = -1
			}
			written, err := w.ds.UpdateDaemonSetStatus(t.Context(), ds)
			answers = append(answers, outcome(err))
			if err == nil {
				stored = append(stored, written)
			}
		}
		read, err := sets.Get(t.Context(), "set", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, read)
	}
	for _, ds := range stored {
		ds.TypeMeta, ds.Namespace, ds.UID, ds.ResourceVersion, ds.ManagedFields = metav1.TypeMeta{}, "", "", "", nil
		ds.CreationTimestamp, ds.Status.Conditions[0].LastTransitionTime = metav1.Time{}, metav1.Time{}
		if diff := cmp.Diff(stored[0], ds); diff != "" {
			t.Errorf("both ways and what is stored differ:\n%s", diff)
		}
	}
	if len(stored) != 4 || stored[0].Spec.MinReadySeconds != 7 {
		t.Errorf("stored: %d times, %+v", len(stored), stored[0])
	}
	if diff := cmp.Diff(answers[:4], answers[4:]); diff != "" {
		t.Errorf("the answers differ:\n%s", diff)
	}
}

// TestInsideDoorAsksPolicies shows that a policy stops writes of either way.
func TestInsideDoorAsksPolicies(t *testing.T) {
	t.Parallel()
	client, http, door := ways(t)
	ctx := t.Context()
	bound := map[string]*corev1.Pod{}
	heartbeats := map[string]func() *coordinationv1.Lease{}
	for _, w := range []way{http, door} {
		p, err := w.ds.CreatePod(ctx, testPod(w.namespace, "guarded"))
		if err != nil {
			t.Fatal(err)
		}
		bound[w.namespace] = p
		heartbeats[w.namespace] = renewing(t, client, w)
	}
	fail := admissionv1.Fail
	operations := []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete}
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "hands-off"},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: operations,
				Rule: admissionv1.Rule{APIGroups: []string{"", "coordination.k8s.io"},
					APIVersions: []string{"v1"}, Resources: []string{"pods", "pods/status", "pods/binding", "leases"}},
			}}}},
			Validations: []admissionv1.Validation{{Expression: "!request.name.startsWith('guarded')",
				Message: "hands off"}},
		},
	}
	if _, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(ctx, policy,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "hands-off"},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "hands-off",
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}
	if _, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(ctx, binding,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the policy to be in force", func(ctx context.Context) error {
		if _, err := client.CoreV1().Pods("default").Create(ctx, testPod("default", "guarded"),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err == nil {
			return errors.New("a guarded pod was taken")
		}
		return nil
	})
	for name, do := range map[string]func(w way) error{
		"renew":  func(w way) error { _, err := w.sim.UpdateLease(ctx, heartbeats[w.namespace]()); return err },
		"create": func(w way) error { _, err := w.ds.CreatePod(ctx, testPod(w.namespace, "guarded")); return err },
		"bind":   func(w way) error { return w.sched.Bind(ctx, bound[w.namespace], scheduler.Chosen{Name: "node-1"}) },
		"status": func(w way) error { _, err := w.sim.UpdatePodStatus(ctx, bound[w.namespace]); return err },
		"delete": func(w way) error { return w.ds.DeletePod(ctx, w.namespace, "guarded", bound[w.namespace].UID) },
	} {
		for _, w := range []way{http, door} {
			if err := do(w); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
				t.Errorf("%s %s: %v, want a refusal by the policy", name, w.namespace, err)
			}
		}
	}
}

// renewing makes the lease of a guarded node, and returns how it is renewed. The server could take a renewal at once:
// it has seen a later lease.
func renewing(t *testing.T, client kubernetes.Interface, w way) func() *coordinationv1.Lease {
	t.Helper()
	now := metav1.NewMicroTime(time.Now())
	var made []*coordinationv1.Lease
	for _, name := range []string{"guarded-", "later-"} {
		lease, err := w.sim.CreateLease(t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name + w.namespace},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("me"), LeaseDurationSeconds: ptr.To[int32](40),
				RenewTime: &now},
		})
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, lease)
	}
	seen := metav1.GetOptions{ResourceVersion: made[1].ResourceVersion}
	if _, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), made[1].Name,
		seen); err != nil {
		t.Fatal(err)
	}
	return func() *coordinationv1.Lease {
		next := made[0].DeepCopy()
		later := metav1.NewMicroTime(now.Add(time.Second))
		next.Spec.RenewTime = &later
		return next
	}
}

// TestInsideDoorLeasesAndEvents checks what else comes by the thousand.
func TestInsideDoorLeasesAndEvents(t *testing.T) {
	t.Parallel()
	client, http, door := ways(t)
	ctx := t.Context()
	specs, messages := map[string]coordinationv1.LeaseSpec{}, map[string]string{}
	now := metav1.NewMicroTime(time.Now().Truncate(time.Microsecond))
	for _, w := range []way{http, door} {
		lease, err := w.sim.CreateLease(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "l"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("me"), LeaseDurationSeconds: ptr.To[int32](40)},
		})
		if err != nil {
			t.Fatal(err)
		}
		old := lease.DeepCopy()
		lease.Spec.RenewTime = &now
		if _, err := w.sim.UpdateLease(ctx, lease); err != nil {
			t.Fatal(err)
		}
		old.Spec.HolderIdentity = ptr.To("somebody else")
		if _, err := w.sim.UpdateLease(ctx, old); !apierrors.IsConflict(err) {
			t.Errorf("%s: a write over a newer lease: %v, want a conflict", w.namespace, err)
		}
		stored, err := client.CoordinationV1().Leases(w.namespace).Get(ctx, "l", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		specs[w.namespace] = stored.Spec
		// Leases are written by who read them, also where a renewal takes a short way.
		unread := renewing(t, client, w)()
		unread.ResourceVersion = ""
		if _, err := w.sim.UpdateLease(ctx, unread); !apierrors.IsInvalid(err) {
			t.Errorf("%s: a renewal of no version: %v, want that it is invalid", w.namespace, err)
		}

		event := &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: w.namespace, Name: "e"},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: w.namespace, Name: "p"},
			Reason:         "Scheduled", Message: "assigned", Type: corev1.EventTypeNormal,
		}
		if _, err := w.events.Create(ctx, event); err != nil {
			t.Fatal(err)
		}
		kept, err := client.CoreV1().Events(w.namespace).Get(ctx, "e", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		messages[w.namespace] = kept.Reason + " " + kept.Message
	}
	if diff := cmp.Diff(specs[http.namespace], specs[door.namespace]); diff != "" {
		t.Errorf("stored leases differ (-http +door):\n%s", diff)
	}
	if messages[http.namespace] != messages[door.namespace] {
		t.Errorf("stored events differ: %v", messages)
	}
}
