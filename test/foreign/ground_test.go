package foreign

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/change/history"
)

// guest is a DaemonSet of which Kubernetes keeps no revision that no pod has. Its class and the LimitRange are there
// because admission adds to a pod what follows from them.
const guest = `apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: agents}
value: 5000
---
apiVersion: v1
kind: LimitRange
metadata: {name: usual, namespace: default}
spec: {limits: [{type: Container, defaultRequest: {cpu: 1m}}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: default}
spec:
  revisionHistoryLimit: 0
  selector: {matchLabels: {app: agent}}
  updateStrategy: {type: OnDelete}
  template:
    metadata: {labels: {app: agent, release: first}}
    spec:
      priorityClassName: agents
      containers: [{name: agent, image: "example.com/agent:1"}]
`

// generation is the label that kube-controller-manager gives its pods besides the hash.
const generation = "pod-template-generation"

// ground is a webhook that gives pods the revisions that a test wants.
type ground struct {
	*cluster
	mu sync.Mutex
	// want is the hash of the revision that new pods get; "" leaves them as they are made.
	want string
	// away has the webhook give no answer, keeps has it leave the label of the generation.
	away, keeps bool
}

func (g *ground) set(change func(*ground)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(g)
}

// TestGroundBesideKubernetes is what Kubernetes' own DaemonSet controller does with pods that are not of the revision it
// made them of. All that is built beside it stands on this; docs/design/0020 says what follows.
func TestGroundBesideKubernetes(t *testing.T) {
	g := &ground{cluster: start(t, nodes)}
	g.kubectl(t, "apply", "-f", g.write("guest.yaml", guest))
	g.settled(t)
	g.register(t)
	for _, s := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"a new template touches no pod", g.newTemplate},
		{"a pod gets the revision before", g.revisionBefore},
		{"a pod with the label of the newest generation counts as up to date", g.keptLabel},
		{"a webhook that does not answer", g.noAnswer},
		{"a revision that no pod has is deleted, and a copy is not", g.copies},
		{"DaemonSets under a policy are written", g.writes},
		{"with RollingUpdate every other pod is replaced", g.rollingUpdate},
	} {
		if !t.Run(s.name, s.do) {
			return
		}
	}
}

// newTemplate changes labels, class and image.
func (g *ground) newTemplate(t *testing.T) {
	before := g.pods(t)
	g.kubectl(t, "patch", "ds/agent", "--type=json", "-p", `[
		{"op":"replace","path":"/spec/template/metadata/labels/release","value":"second"},
		{"op":"remove","path":"/spec/template/spec/priorityClassName"},
		{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"example.com/agent:2"}]`)
	g.status(t, 0, nodes)
	g.samePods(t, before)
	if n := len(g.revisions(t)); n != 2 {
		t.Errorf("there are %d revisions", n)
	}
	g.run(t, "kubectl", "rollout", "status", "ds/agent", "--timeout=1s").ends(t, 1).
		says(t, "rollout status is only available for RollingUpdate strategy type")
}

// revisionBefore deletes a pod of a node that is to have the old revision.
func (g *ground) revisionBefore(t *testing.T) {
	old := g.hash(t, "first")
	g.set(func(g *ground) { g.want = old })
	p := g.replaced(t, "sim-0001")
	switch {
	case p.Labels[appsv1.ControllerRevisionHashLabelKey] != old, p.Labels[generation] != "", p.Labels["release"] != "first":
		t.Errorf("its labels are %v", p.Labels)
	case p.Spec.Containers[0].Image != "example.com/agent:1", ptr.Deref(p.Spec.Priority, 0) != 5000:
		t.Errorf("its image is %s and its priority %d", p.Spec.Containers[0].Image, ptr.Deref(p.Spec.Priority, 0))
	case len(p.Spec.Volumes) != 1 || p.Spec.Containers[0].Resources.Requests.Cpu().String() != "1m":
		t.Errorf("the API server's own admission did not come after the webhook: %+v", p.Spec)
	}
	g.status(t, 0, nodes)
	before := g.pods(t)
	g.kubectl(t, "patch", "ds/agent", "--type=merge", "-p", `{"spec":{"minReadySeconds":1}}`)
	g.status(t, 0, nodes)
	g.samePods(t, before)
}

// keptLabel has a pod of the old revision that is labelled with the newest generation.
func (g *ground) keptLabel(t *testing.T) {
	g.set(func(g *ground) { g.keeps = true })
	g.replaced(t, "sim-0002")
	g.status(t, 1, nodes)
	g.set(func(g *ground) { g.keeps = false })
	g.replaced(t, "sim-0002")
	g.status(t, 0, nodes)
}

// noAnswer deletes pods while the webhook is away.
func (g *ground) noAnswer(t *testing.T) {
	g.set(func(g *ground) { g.away = true })
	g.remove(t, "sim-0003")
	await(t, "the creation is refused", func(ctx context.Context) error {
		events, err := g.client.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "reason=FailedCreate"})
		if err == nil && !slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return strings.Contains(e.Message, "failed calling webhook") }) {
			err = fmt.Errorf("%d events FailedCreate", len(events.Items))
		}
		return err
	})
	g.policy(t, admissionregistrationv1.Ignore)
	if p := g.there(t, "sim-0003", ""); p.Labels["release"] != "second" || p.Labels[generation] == "" {
		t.Errorf("without a webhook the pod is labelled %v", p.Labels)
	}
	g.policy(t, admissionregistrationv1.Fail)
	g.set(func(g *ground) { g.away = false })
	g.replaced(t, "sim-0003")
	g.status(t, 0, nodes)
}

// copies has all pods leave the old revision, which Kubernetes then deletes; a copy that something else controls stays,
// and pods can be made of it.
func (g *ground) copies(t *testing.T) {
	ctx := t.Context()
	old := g.hash(t, "first")
	keeper, err := g.client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "rollout"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range g.revisions(t) {
		if history.HashOf(&r) != old {
			continue
		}
		r.ObjectMeta = metav1.ObjectMeta{Name: "stable-" + r.Name, Labels: r.Labels, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "ConfigMap", Name: keeper.Name, UID: keeper.UID, Controller: ptr.To(true)},
		}}
		_, err = g.client.AppsV1().ControllerRevisions("default").Create(ctx, &r, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	g.set(func(g *ground) { g.want = "" })
	for node := range g.pods(t) {
		g.remove(t, node)
	}
	g.status(t, nodes, nodes)
	g.kubectl(t, "patch", "ds/agent", "--type=merge", "-p", `{"spec":{"minReadySeconds":2}}`)
	await(t, "the old revision is deleted", func(context.Context) error {
		var names []string
		for _, r := range g.revisions(t) {
			names = append(names, r.Name)
		}
		if len(names) != 2 || !slices.Contains(names, "stable-agent-"+old) {
			return fmt.Errorf("the revisions are %v", names)
		}
		return nil
	})
	g.set(func(g *ground) { g.want = old })
	if p := g.replaced(t, "sim-0001"); p.Spec.Containers[0].Image != "example.com/agent:1" {
		t.Errorf("the pod is %+v", p.Spec)
	}
	g.status(t, nodes-1, nodes)
}

// rollingUpdate gives the DaemonSet back while one pod is of another revision.
func (g *ground) rollingUpdate(t *testing.T) {
	g.set(func(g *ground) { g.want = "" })
	before := g.pods(t)
	g.kubectl(t, "patch", "ds/agent", "--type=merge", "-p", `{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}`)
	g.status(t, nodes, nodes)
	var changed []string
	for node, uid := range g.pods(t) {
		if before[node] != uid {
			changed = append(changed, node)
		}
	}
	if !slices.Equal(changed, []string{"sim-0001"}) {
		t.Errorf("pods were replaced on %v", changed)
	}
}

// register serves the webhook until the test ends. It sees the pods that the DaemonSet controller makes, and no others.
func (g *ground) register(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(g.serve))
	t.Cleanup(server.Close)
	const whose = "system:serviceaccount:kube-system:daemon-set-controller"
	hook := admissionregistrationv1.MutatingWebhook{
		Name: "pods.everynode.io", AdmissionReviewVersions: []string{"v1"}, TimeoutSeconds: ptr.To[int32](3),
		SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), FailurePolicy: ptr.To(admissionregistrationv1.Fail),
		ClientConfig: admissionregistrationv1.WebhookClientConfig{
			URL:      ptr.To(server.URL),
			CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
		}},
		MatchConditions: []admissionregistrationv1.MatchCondition{
			{Name: "made-by-the-daemonset-controller", Expression: `request.userInfo.username == "` + whose + `"`},
			{Name: "of-a-daemonset", Expression: `object.metadata.?ownerReferences.orValue([]).exists(o, o.kind == "DaemonSet" && o.?controller.orValue(false))`},
		},
	}
	sets := *hook.DeepCopy()
	sets.Name, sets.MatchConditions = "daemonsets.everynode.io", nil
	sets.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"follows": "a-policy"}}
	sets.Rules[0].Operations = append(sets.Rules[0].Operations, admissionregistrationv1.Update)
	sets.Rules[0].Rule = admissionregistrationv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"daemonsets"}}
	_, err := g.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "000-everynode"}, Webhooks: []admissionregistrationv1.MutatingWebhook{hook, sets},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the webhook is asked", func(ctx context.Context) error {
		g.set(func(g *ground) { g.away = true })
		defer g.set(func(g *ground) { g.away = false })
		probe := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "probe", OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "probe", UID: "1", Controller: ptr.To(true)},
			}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		as := g.impersonating(t, whose)
		_, err := as.CoreV1().Pods("default").Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
			return fmt.Errorf("a pod is answered: %w", err)
		}
		return nil
	})
}

// serve answers the API server.
func (g *ground) serve(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var review admissionv1.AdmissionReview
	err := json.NewDecoder(r.Body).Decode(&review)
	if err != nil || review.Request == nil || g.away {
		http.Error(w, "there is no answer", http.StatusInternalServerError)
		return
	}
	answer := g.pod
	if review.Request.Resource.Resource == "daemonsets" {
		answer = daemonSet
	}
	response, err := answer(review.Request)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	review.Request, review.Response = nil, response
	_ = json.NewEncoder(w).Encode(review) // The API server may have gone.
}

// pod answers for a pod.
func (g *ground) pod(r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	list, err := g.client.AppsV1().ControllerRevisions("default").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var revisions []*appsv1.ControllerRevision
	for i := range list.Items {
		revisions = append(revisions, &list.Items[i])
	}
	a := admit.Pod(admit.NewPod{Pod: r.Object.Raw, Want: g.want, Revisions: revisions})
	response := &admissionv1.AdmissionResponse{UID: r.UID, Allowed: a.Verb != admit.Unknown, Patch: a.Patch}
	if a.Verb == admit.Unknown {
		response.Result = &metav1.Status{Message: a.Why}
	}
	if a.Verb == admit.Rewrite {
		response.PatchType = ptr.To(admissionv1.PatchTypeJSONPatch)
	}
	if a.Verb == admit.Rewrite && g.keeps {
		var pod corev1.Pod
		err = json.Unmarshal(r.Object.Raw, &pod)
		if err != nil {
			return nil, err
		}
		label := fmt.Sprintf(`,{"op":"add","path":"/metadata/labels/%s","value":%q}]`, generation, pod.Labels[generation])
		response.Patch = append(a.Patch[:len(a.Patch)-1], label...)
	}
	return response, nil
}

// policy says what becomes of pods while the webhook is away, and waits until that holds.
func (g *ground) policy(t *testing.T, p admissionregistrationv1.FailurePolicyType) {
	t.Helper()
	patch := fmt.Sprintf(`[{"op":"replace","path":"/webhooks/0/failurePolicy","value":%q}]`, p)
	_, err := g.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(t.Context(), "000-everynode", types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// hash is that of the revision whose template has a label.
func (g *ground) hash(t *testing.T, release string) string {
	t.Helper()
	for _, r := range g.revisions(t) {
		template, err := history.Template(&r)
		if err != nil {
			t.Fatal(err)
		}
		if template.Labels["release"] == release {
			return history.HashOf(&r)
		}
	}
	t.Fatalf("there is no revision %s", release)
	return ""
}

func (g *ground) revisions(t *testing.T) []appsv1.ControllerRevision {
	t.Helper()
	list, err := g.client.AppsV1().ControllerRevisions("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// status waits for what the DaemonSet's status says, of its present generation.
func (g *ground) status(t *testing.T, updated, available int32) {
	t.Helper()
	await(t, fmt.Sprintf("%d pods are up to date and %d available", updated, available), func(ctx context.Context) error {
		ds, err := g.client.AppsV1().DaemonSets("default").Get(ctx, "agent", metav1.GetOptions{})
		if err != nil {
			return err
		}
		s := ds.Status
		if s.ObservedGeneration != ds.Generation || s.UpdatedNumberScheduled != updated || s.NumberAvailable != available {
			return fmt.Errorf("the status is %+v of generation %d", s, ds.Generation)
		}
		return nil
	})
}

// remove deletes the node's pod, and returns its UID.
func (g *ground) remove(t *testing.T, node string) string {
	t.Helper()
	for _, p := range g.list(t) {
		if p.Spec.NodeName == node {
			err := g.client.CoreV1().Pods("default").Delete(t.Context(), p.Name, metav1.DeleteOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return string(p.UID)
		}
	}
	t.Fatalf("there is no pod on %s", node)
	return ""
}

// replaced deletes the node's pod, and returns the one that takes its place.
func (g *ground) replaced(t *testing.T, node string) corev1.Pod {
	t.Helper()
	return g.there(t, node, g.remove(t, node))
}

// there waits for a pod that runs on the node, and is not the one that was there.
func (g *ground) there(t *testing.T, node, before string) (out corev1.Pod) {
	t.Helper()
	await(t, "a pod runs on "+node, func(context.Context) error {
		for _, p := range g.list(t) {
			if p.Spec.NodeName == node && string(p.UID) != before && p.Status.Phase == corev1.PodRunning {
				out = p
				return nil
			}
		}
		return fmt.Errorf("there is none")
	})
	return out
}

// impersonating is a client of somebody else.
func (c *cluster) impersonating(t *testing.T, user string) kubernetes.Interface {
	t.Helper()
	config := rest.CopyConfig(c.config)
	config.Impersonate.UserName = user
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
