package foreign

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/internal/beside/registration"
	"github.com/everynode/everynode/internal/controller/nodestartup/plan"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// tolerates is what a listed DaemonSet's template has to have.
const tolerates = "      tolerations: [{key: everynode.io/starting, operator: Exists, effect: NoSchedule}]\n"

// listedSet is a DaemonSet whose daemons are available some seconds after they are ready.
func listedSet(name, tolerations string) string {
	return strings.NewReplacer("NAME", name, "TOLERATIONS", tolerations).Replace(`apiVersion: apps/v1
kind: DaemonSet
metadata: {name: NAME, namespace: default}
spec:
  selector: {matchLabels: {app: NAME}}
  minReadySeconds: 4
  template:
    metadata: {labels: {app: NAME}}
    spec:
TOLERATIONS      containers: [{name: c, image: "example.com/NAME:1"}]
`)
}

// startupOf is a NodeStartup with a group for each name.
func startupOf(names ...string) string {
	text := "apiVersion: everynode.io/v1alpha1\nkind: NodeStartup\nmetadata: {name: all}\nspec:\n  groups:\n"
	for _, name := range names {
		text += "  - daemonSets: [{namespace: default, name: " + name + "}]\n"
	}
	return text
}

// TestNodesStartBesideKubernetes has nodes closed from the write that creates them until their daemons are available,
// where kube-controller-manager makes these.
func TestNodesStartBesideKubernetes(t *testing.T) {
	b := &beside{cluster: startWith(t, 3, "")}
	b.front = newFront(t)
	b.kinds(t)
	b.kubectl(t, "wait", "crd/nodestartups.everynode.io", "--for=condition=Established", "--timeout=1m")
	b.begins(t)
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"nodes that are there stay open", b.staysOpen},
		{"a node is closed when it joins, and opens when its daemon is available", b.joinsClosed},
		{"a DaemonSet that does not tolerate the taint keeps nodes open", b.notTolerated},
		{"a node that joins while nobody answers stays open, and that is told", b.joinsUnheard},
		{"the printed policy closes a node while nobody answers", b.closedByPolicy},
		{"what the API server takes of a write of a node's status", b.statusWrites},
		{"a node whose machine has started again is closed by the leader", b.startsAgain},
		{"the leader dies, and the other one closes and opens", b.startsWithout},
		{"a closed node opens when a DaemonSet comes that could not run there", b.barred},
		{"the NodeStartup goes, and its nodes open", b.startupGoes},
		{"whoever leaves takes everything along", b.leavesStartups},
	} {
		if !t.Run(step.name, step.do) {
			return
		}
	}
	b.refusals(besideAccount, 50)
}

// startups waits until the leader has taken note of the NodeStartup, and whether Nodes that join are asked about.
func (b *beside) startups(t *testing.T, asked bool) {
	t.Helper()
	await(t, fmt.Sprintf("that Nodes are asked about is %v", asked), func(ctx context.Context) error {
		hooks, err := b.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, registration.Name,
			metav1.GetOptions{})
		if err != nil {
			return err
		}
		if at := len(hooks.Webhooks); hooks.Webhooks[at-1].Name == registration.NodesWebhook != asked {
			return fmt.Errorf("the last of %d webhooks is %s", at, hooks.Webhooks[at-1].Name)
		}
		return nil
	})
}

// node is a node as it is.
func (b *beside) node(t *testing.T, name string) *corev1.Node {
	t.Helper()
	n, err := b.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// gated waits until a node is closed, or open.
func (b *beside) gated(t *testing.T, name string, closed bool) *corev1.Node {
	t.Helper()
	var n *corev1.Node
	await(t, fmt.Sprintf("that node %s is closed is %v", name, closed), func(ctx context.Context) (err error) {
		n, err = b.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err == nil && (nodestartup.TaintOf(n.Spec.Taints) != nil) != closed {
			err = fmt.Errorf("its taints are %v, its annotations are %v", n.Spec.Taints, n.Annotations)
		}
		return err
	})
	return n
}

// startupSays waits until a condition of the NodeStartup has a status, and its message a text.
func (b *beside) startupSays(t *testing.T, condition string, status metav1.ConditionStatus, says string) {
	t.Helper()
	own, err := everynode.NewForConfig(b.config)
	if err != nil {
		t.Fatal(err)
	}
	await(t, fmt.Sprintf("the condition %s is %s and says %q", condition, status, says), func(ctx context.Context) error {
		s, err := own.NodeStartups().Get(ctx, "all", metav1.GetOptions{})
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(s.Status.Conditions, condition)
		if c == nil || c.Status != status || !strings.Contains(c.Message, says) || c.ObservedGeneration != s.Generation {
			return fmt.Errorf("it is %+v of generation %d", s.Status.Conditions, s.Generation)
		}
		return nil
	})
}

// staysOpen has a NodeStartup come when there are nodes.
func (b *beside) staysOpen(t *testing.T) {
	b.startups(t, false)
	b.kubectl(t, "apply", "-f", b.write("net.yaml", listedSet("net", tolerates)))
	b.kubectl(t, "apply", "-f", b.write("startup.yaml", startupOf("net")))
	b.startups(t, true)
	b.startupSays(t, plan.DaemonSetsTolerate, metav1.ConditionTrue, "")
	b.startupSays(t, plan.Ordered, metav1.ConditionTrue, "one group")
	b.startupSays(t, plan.NodesClosed, metav1.ConditionTrue, "")
	for i := range 3 {
		name := fmt.Sprintf("sim-%04d", i+1)
		await(t, name+" is marked", func(context.Context) error {
			mark, _ := nodestartup.MarkOf(b.node(t, name))
			if mark.BootID != name {
				return fmt.Errorf("its mark is %v", mark)
			}
			return nil
		})
		b.gated(t, name, false)
	}
}

// eager is an ordinary pod that nothing but a node's taint keeps from being bound there.
func (b *beside) eager(t *testing.T, node string) {
	t.Helper()
	b.kubectl(t, "wait", "serviceaccount/default", "--for=create", "--timeout=1m")
	b.kubectl(t, "apply", "-f", b.write(node+".yaml", strings.ReplaceAll(`apiVersion: v1
kind: Pod
metadata: {name: eager-NODE, namespace: default}
spec:
  nodeSelector: {kubernetes.io/hostname: NODE}
  tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists}]
  containers: [{name: c, image: "example.com/web:1"}]
`, "NODE", node)))
}

// history are the states of a node, from the write that creates it on.
func (b *beside) history(t *testing.T, name string) func() []corev1.Node {
	t.Helper()
	w, err := b.client.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan []corev1.Node)
	go func() {
		var all []corev1.Node
		for e := range w.ResultChan() {
			if n, ok := e.Object.(*corev1.Node); ok && e.Type != watch.Deleted {
				all = append(all, *n)
			}
		}
		done <- all
	}()
	return func() []corev1.Node { w.Stop(); return <-done }
}

// joinsClosed has nodes join, with a pod that waits for each.
func (b *beside) joinsClosed(t *testing.T) {
	const name = "late-0001"
	b.eager(t, name)
	history := b.history(t, name)
	b.simulateMore("late-", 1, "")
	b.opens(t, name, "net")
	all := history()
	for i := range all {
		n := &all[i]
		if nodestartup.TaintOf(n.Spec.Taints) == nil {
			break
		}
		if i == 0 && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == corev1.TaintNodeNotReady
		}) {
			t.Errorf("the taint that the API server adds is gone: %v", n.Spec.Taints)
		}
	}
	if len(all) == 0 || nodestartup.TaintOf(all[0].Spec.Taints) == nil {
		t.Error("the node was not closed in the write that created it")
	}
}

// opens wants a node to open, and no ordinary pod to be bound to it before its daemons are available.
func (b *beside) opens(t *testing.T, name string, daemons ...string) {
	t.Helper()
	var available time.Time
	await(t, "the daemons of "+name+" are ready", func(context.Context) error {
		ready := 0
		for _, p := range b.onNode(t, name) {
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && slices.Contains(daemons, p.Labels["app"]) {
					ready++
					if at := c.LastTransitionTime.Add(4 * time.Second); at.After(available) {
						available = at
					}
				}
			}
		}
		if ready != len(daemons) {
			return fmt.Errorf("%d are", ready)
		}
		return nil
	})
	await(t, "the pod that waits for "+name+" is bound", func(context.Context) error {
		for _, p := range b.onNode(t, name) {
			if p.Name != "eager-"+name {
				continue
			}
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue && c.LastTransitionTime.Time.Before(available) {
					t.Errorf("it was bound at %v, and its daemons are available from %v", c.LastTransitionTime.Time, available)
				}
			}
			return nil
		}
		return errors.New("it is not there")
	})
	b.gated(t, name, false)
}

func (b *beside) onNode(t *testing.T, name string) []corev1.Pod {
	t.Helper()
	list, err := b.client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + name})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// notTolerated lists a DaemonSet that has no toleration. Its pods would never come to a closed node.
func (b *beside) notTolerated(t *testing.T) {
	b.kubectl(t, "apply", "-f", b.write("log.yaml", listedSet("log", "")))
	b.plansNodes(t, startupOf("net", "log", "missing"), "closes no node while the template of default/log does not tolerate",
		"the daemons of all groups start at once")
	b.plansVariant(t)
	b.kubectl(t, "apply", "-f", b.write("startup.yaml", startupOf("net", "log")))
	b.startupSays(t, plan.DaemonSetsTolerate, metav1.ConditionFalse, "default/log")
	b.startupSays(t, plan.Ordered, metav1.ConditionFalse, "at once")
	const name = "plain-0001"
	history := b.history(t, name)
	b.eager(t, name)
	b.simulateMore("plain-", 1, "")
	await(t, "the pod is bound", func(context.Context) error {
		if len(b.onNode(t, name)) == 0 {
			return errors.New("nothing is")
		}
		return nil
	})
	b.nodeEvent(t, name, "NotClosed", "default/log")
	for _, n := range history() {
		if nodestartup.TaintOf(n.Spec.Taints) != nil {
			t.Fatalf("the node was closed: %v", n.Spec.Taints)
		}
	}
	b.startupSays(t, plan.NodesClosed, metav1.ConditionFalse, name)
	b.run(t, "doctor").says(t, "does not tolerate the taint everynode.io/starting")
	b.kubectl(t, "annotate", "node", name, nodestartup.NotClosedAnnotation+"-")
	b.startupSays(t, plan.NodesClosed, metav1.ConditionTrue, "")

	b.kubectl(t, "apply", "-f", b.write("log.yaml", listedSet("log", tolerates)))
	b.startupSays(t, plan.DaemonSetsTolerate, metav1.ConditionTrue, "")
	b.eager(t, "both-0001")
	history = b.history(t, "both-0001")
	b.simulateMore("both-", 1, "")
	b.opens(t, "both-0001", "net", "log")
	if all := history(); nodestartup.TaintOf(all[0].Spec.Taints) == nil {
		t.Error("the node was not closed in the write that created it")
	}
}

// plansNodes wants texts in the plan of a NodeStartup, and no word of nodes that never open: none is closed.
func (b *beside) plansNodes(t *testing.T, text string, says ...string) {
	t.Helper()
	a := b.run(t, "plan", "-f", b.write("planned.yaml", text)).ends(t, 2).says(t, says...)
	if strings.Contains(a.out, "Never opens") {
		t.Errorf("no node is closed, and the plan says\n%s", a.out)
	}
}

// plansVariant plans a variant, which another controller does not use, and applies it: no pod is another one then.
func (b *beside) plansVariant(t *testing.T) {
	t.Helper()
	file := b.write("variant.yaml", `apiVersion: everynode.io/v1alpha1
kind: DaemonSetVariant
metadata: {name: larger, namespace: default}
spec: {resources: {c: {requests: {cpu: "0.1"}}}}
`)
	b.run(t, "plan", "-f", file).ends(t, 0).says(t, "no DaemonSetVariant is used")
	before := b.onNode(t, "sim-0001")
	b.kubectl(t, "apply", "-f", file)
	await(t, "the variant says that it does not apply", func(context.Context) error {
		if a := b.run(t, "kubectl", "get", "dsv/larger", "-o", "yaml"); !strings.Contains(a.out, `status: "False"`) {
			return errors.New(a.out + a.errOut)
		}
		return nil
	})
	for i, p := range b.onNode(t, "sim-0001") {
		if len(before) <= i || p.UID != before[i].UID || p.Generation != before[i].Generation {
			t.Errorf("pod %s is another one", p.Name)
		}
	}
	b.kubectl(t, "delete", "-f", file)
}

// nodeEvent waits for an event about a node.
func (b *beside) nodeEvent(t *testing.T, node, reason, says string) {
	t.Helper()
	await(t, "an event "+reason+" of "+node+" says "+says, func(ctx context.Context) error {
		events, err := b.client.CoreV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reason})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.InvolvedObject.Name == node && strings.Contains(e.Message, says) {
				return nil
			}
		}
		return fmt.Errorf("there are %d events of that reason", len(events.Items))
	})
}

// joinsUnheard has a node join while the API server reaches nobody.
func (b *beside) joinsUnheard(t *testing.T) {
	heard := b.front.to.Swap(nil)
	b.front.cut()
	b.simulateMore("unheard-", 1, "")
	const name = "unheard-0001"
	b.nodeEvent(t, name, "NotClosed", "no webhook of Everynode answered")
	b.front.to.Store(heard)
	b.gated(t, name, false)
	b.startupSays(t, plan.NodesClosed, metav1.ConditionFalse, name)
	b.shown(t, "\neverynode_nodestartup_not_closed_total 2\n")
	b.run(t, "doctor").says(t, name, "no webhook of Everynode answered when it was created")
}

// closedByPolicy has the API server close nodes itself, by the policy that is printed, while the webhook is away.
func (b *beside) closedByPolicy(t *testing.T) {
	file := b.write("policy.yaml", b.run(t, "controller", "--print-startup-policy", "v1").ends(t, 0).out)
	b.kubectl(t, "apply", "-f", file)
	other := corev1.Taint{Key: "example.com/other", Effect: corev1.TaintEffectNoExecute}
	tried := func(closed bool) {
		t.Helper()
		await(t, fmt.Sprintf("that the policy closes a node is %v", closed), func(ctx context.Context) error {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "tried"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{other}}}
			n, err := b.client.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil && ((nodestartup.TaintOf(n.Spec.Taints) != nil) != closed || !slices.Contains(n.Spec.Taints, other)) {
				err = fmt.Errorf("its taints are %v", n.Spec.Taints)
			}
			return err
		})
	}
	heard := b.front.to.Swap(nil)
	b.front.cut()
	tried(true)
	events, err := b.client.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=policed-0001"})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	b.simulateMore("policed-", 1, "")
	first := <-events.ResultChan()
	if n, is := first.Object.(*corev1.Node); !is || nodestartup.TaintOf(n.Spec.Taints) == nil {
		t.Errorf("the first that is seen of the node is %+v", first.Object)
	}
	b.gated(t, "policed-0001", false) // its daemon is there
	if why := b.node(t, "policed-0001").Annotations[nodestartup.NotClosedAnnotation]; why != "" {
		t.Errorf("it is told that it was not closed: %s", why)
	}
	b.kubectl(t, "delete", "-f", file)
	tried(false)
	b.front.to.Store(heard)
}

// statusWrites shows why the report that a machine has started again cannot close its node: the API server asks webhooks
// about it, takes a label from them, and drops a taint.
func (b *beside) statusWrites(t *testing.T) {
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true,
			PatchType: ptr.To(admissionv1.PatchTypeJSONPatch), Patch: []byte(`[
				{"op":"add","path":"/spec/taints","value":[{"key":"example.com/seen","effect":"NoSchedule"}]},
				{"op":"add","path":"/metadata/labels/seen","value":"true"}]`)}
		_ = json.NewEncoder(w).Encode(review) // The API server may have gone.
	}))
	defer hook.Close()
	rule := admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
		Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
			Resources: []string{"nodes/status"}},
	}
	hooks := b.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err := hooks.Create(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "on-status"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "status.example.com", AdmissionReviewVersions: []string{"v1"},
			SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone),
			Rules:       []admissionregistrationv1.RuleWithOperations{rule},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &hook.URL, CABundle: pem.EncodeToMemory(
				&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the webhook is asked", func(context.Context) error {
		b.kubectl(t, "patch", "node", "sim-0003", "--subresource=status", "--type=merge", "-p",
			fmt.Sprintf(`{"status":{"nodeInfo":{"osImage":"%d"}}}`, time.Now().UnixNano()))
		if n := b.node(t, "sim-0003"); n.Labels["seen"] == "" {
			return errors.New("the label is not there")
		}
		return nil
	})
	if n := b.node(t, "sim-0003"); slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == "example.com/seen"
	}) {
		t.Errorf("a write of a status may change taints: %v", n.Spec.Taints)
	}
	if err := hooks.Delete(t.Context(), "on-status", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// startsAgain has a machine report another boot.
func (b *beside) startsAgain(t *testing.T) {
	const name = "sim-0001"
	since := time.Now()
	b.boots(t, name, "second")
	n := b.gated(t, name, true)
	t.Logf("the node was closed within %v", time.Since(since))
	if mark, _ := nodestartup.MarkOf(n); n.Annotations[nodestartup.ClosedAnnotation] == "" || mark.BootID != "second" {
		t.Errorf("its annotations are %v", n.Annotations)
	}
	b.nodeEvent(t, name, "ClosedAgain", "")
	b.gated(t, name, false)
}

func (b *beside) boots(t *testing.T, name, id string) {
	t.Helper()
	b.kubectl(t, "patch", "node", name, "--subresource=status", "--type=merge", "-p",
		`{"status":{"nodeInfo":{"bootID":"`+id+`"}}}`)
}

// bare creates a Node of which nobody writes the status.
func (b *beside) bare(t *testing.T, name string, taints ...corev1.Taint) {
	t.Helper()
	_, err := b.client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Spec:       corev1.NodeSpec{Taints: taints}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// startsWithout has the leader die. A machine that starts again while nobody leads is noticed by the next one.
func (b *beside) startsWithout(t *testing.T) {
	// A simulated node would write its own boot ID again.
	b.bare(t, "bare", corev1.Taint{Key: nodestartup.TaintKey, Value: "all_1", Effect: corev1.TaintEffectNoSchedule})
	b.boots(t, "bare", "first")
	await(t, "the node is marked", func(context.Context) error {
		n := b.node(t, "bare")
		if mark, _ := nodestartup.MarkOf(n); mark.BootID != "first" {
			return fmt.Errorf("its mark is %v", mark)
		}
		// It has closed itself.
		if gate := nodestartup.TaintOf(n.Spec.Taints); gate == nil || gate.TimeAdded == nil {
			return fmt.Errorf("its taints are %v", n.Spec.Taints)
		}
		if why := n.Annotations[nodestartup.NotClosedAnnotation]; why != "" {
			t.Errorf("it is told of as %s", why)
		}
		return nil
	})
	leader := b.leader(t)
	b.kill(t, b.replicas[leader])
	b.boots(t, "bare", "second")
	const name = "orphan-0001"
	b.eager(t, name)
	history := b.history(t, name)
	b.simulateMore("orphan-", 1, "")
	b.opens(t, name, "net", "log")
	if all := history(); nodestartup.TaintOf(all[0].Spec.Taints) == nil {
		t.Error("the node was not closed in the write that created it")
	}
	b.nodeEvent(t, "bare", "ClosedAgain", "")
	b.kubectl(t, "delete", "node", "bare")
	b.replicas[leader] = b.again(b.replicas[leader])
}

// barred lists a DaemonSet that is missing: nodes wait for it. Then it comes, and could not run there.
func (b *beside) barred(t *testing.T) {
	b.kubectl(t, "apply", "-f", b.write("startup.yaml", startupOf("net", "late")))
	b.startupSays(t, plan.DaemonSetsFound, metav1.ConditionFalse, "default/late")
	const name = "waits-0001"
	b.simulateMore("waits-", 1, "")
	b.gated(t, name, true)
	await(t, "why says what it waits for", func(context.Context) error {
		if a := b.run(t, "why", name); !strings.Contains(a.out, "default/late, which does not exist") {
			return errors.New(a.out)
		}
		return nil
	})
	b.kubectl(t, "apply", "-f", b.write("late.yaml", listedSet("late", "")))
	b.nodeEvent(t, name, "NotClosed", "default/late")
	b.gated(t, name, false)
	b.kubectl(t, "delete", "ds/late")
}

// startupGoes deletes the NodeStartup that a node waits under.
func (b *beside) startupGoes(t *testing.T) {
	const name = "gone-0001"
	b.kubectl(t, "apply", "-f", b.write("startup.yaml", startupOf("net", "late")))
	b.startupSays(t, plan.DaemonSetsFound, metav1.ConditionFalse, "default/late")
	b.simulateMore("gone-", 1, "")
	b.gated(t, name, true)
	b.kubectl(t, "delete", "nodestartup", "all")
	b.gated(t, name, false)
	b.startups(t, false)
}

// leavesStartups leaves while a node is closed.
func (b *beside) leavesStartups(t *testing.T) {
	b.kubectl(t, "apply", "-f", b.write("startup.yaml", startupOf("net", "late")))
	b.startups(t, true)
	b.startupSays(t, plan.DaemonSetsFound, metav1.ConditionFalse, "default/late")
	const name = "left-0001"
	b.simulateMore("left-", 1, "")
	b.gated(t, name, true)
	policy := b.run(t, "controller", "--print-startup-policy", "v1").ends(t, 0).out
	b.kubectl(t, "apply", "-f", b.write("policy.yaml", policy))
	b.leave(t).ends(t, 0).says(t, "no webhook of Everynode is left", "The policy everynode-startup")
	b.unregistered(t)
	_, err := b.client.AdmissionregistrationV1().MutatingAdmissionPolicies().Get(t.Context(),
		registration.StartupPolicyName, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the policy is left (%v)", err)
	}
	time.Sleep(3 * time.Second) // those that run might close it again
	b.untouchedNodes(t)
}

// untouchedNodes wants no node to have anything of NodeStartups.
func (b *beside) untouchedNodes(t *testing.T) {
	t.Helper()
	list, err := b.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range list.Items {
		if nodestartup.TaintOf(n.Spec.Taints) != nil {
			t.Errorf("node %s is closed", n.Name)
		}
		for key := range n.Annotations {
			if strings.HasPrefix(key, "everynode.io/") && key != "everynode.io/fetch-images" {
				t.Errorf("node %s has %s", n.Name, key)
			}
		}
	}
}
