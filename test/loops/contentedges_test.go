package loops

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/simulator/illness"
	"github.com/everynode/everynode/internal/testenv"
)

// edgeNodes is how many nodes there are in tests of content's edges.
const edgeNodes = 4

// byHand has each change wait behind its first node, until somebody approves.
const byHand = `
waves: [{name: canary, count: 1, approval: Manual}]
failure: {max: 0, min: 1, then: Rollback}
content: {settle: 1s}`

// byItself goes on by itself. Containers that find bad content end soon, but not at once.
const byItself = `
waves: [{name: canary, count: 1, soak: 5s}]
failure: {max: 0, min: 1, then: Rollback}
content: {settle: 1s}`

// edge is a namespace with a ConfigMap "agent", and DaemonSets that mount it.
type edge struct {
	*testenv.Env
	t   *testing.T
	ns  string
	own *everynode.Client
}

// TestContentAtItsEdges shares a control plane between tests that have a namespace each.
func TestContentAtItsEdges(t *testing.T) {
	t.Parallel()
	faults, err := illness.Parse([]byte(badContent))
	if err != nil {
		t.Fatal(err)
	}
	env := testenv.Start(t, testenv.SimulatedNodes(edgeNodes), func(o *config.Options) { o.Faults = faults })
	own, err := everynode.NewForConfig(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]func(*edge){
		"shared":         sharedConfigMap,
		"policy-gone":    policyGoes,
		"policy-middle":  policyGoesInTheMiddle,
		"content-off":    contentIsTurnedOff,
		"copy-deleted":   copyIsDeleted,
		"object-deleted": configMapComesBack,
		"too-big":        objectTooBig,
		"too-many":       tooManyObjects,
		"no-rights":      rightsComeAndGo,
		"daemonset-gone": copiesGoWithTheirDaemonSet,
		"rolled-back":    rolledBackKeepsItsCopy,
		"second-edit":    secondEditInTheMiddle,
		"namespace-gone": namespaceGoes,
		"quota":          quotaHasNoRoom,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &edge{env.For(t), t, "edge-" + name, own}
			e.start()
			test(e)
		})
	}
}

// start makes the namespace, and the ConfigMap, which says "good".
func (e *edge) start() {
	e.t.Helper()
	_, err := e.Client.CoreV1().Namespaces().Create(e.t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.ns}}, metav1.CreateOptions{})
	e.must(err)
	e.Eventually("the default service account is there", func(ctx context.Context) error {
		_, err := e.Client.CoreV1().ServiceAccounts(e.ns).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	e.make("good")
}

func (e *edge) must(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

// allow gives the DaemonSet controller the right to read and copy ConfigMaps.
func (e *edge) allow() {
	e.t.Helper()
	_, err := e.Client.RbacV1().RoleBindings(e.ns).Create(e.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "content"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "everynode:content"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "kube-system", Name: "daemon-set-controller"}},
	}, metav1.CreateOptions{})
	e.must(err)
}

// make makes the ConfigMap.
func (e *edge) make(value string) {
	e.t.Helper()
	_, err := e.Client.CoreV1().ConfigMaps(e.ns).Create(e.t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Data: map[string]string{"agent.conf": value},
	}, metav1.CreateOptions{})
	e.must(err)
}

// write edits the ConfigMap.
func (e *edge) write(value string) {
	e.t.Helper()
	body := fmt.Sprintf(`{"data":{"agent.conf":%q}}`, value)
	_, err := e.Client.CoreV1().ConfigMaps(e.ns).Patch(e.t.Context(), "agent", types.MergePatchType, []byte(body), metav1.PatchOptions{})
	e.must(err)
}

// remove deletes the ConfigMap.
func (e *edge) remove() {
	e.t.Helper()
	e.must(e.Client.CoreV1().ConfigMaps(e.ns).Delete(e.t.Context(), "agent", metav1.DeleteOptions{}))
}

// policy makes a policy for the DaemonSet of that name, and waits until the controller knows it.
func (e *edge) policy(name, text string) {
	e.t.Helper()
	p := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	e.must(yaml.UnmarshalStrict([]byte(text), &p.Spec))
	p.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	_, err := e.own.RolloutPolicies(e.ns).Create(e.t.Context(), p, metav1.CreateOptions{})
	e.must(err)
	e.Eventually("the controller knows policy "+name, func(ctx context.Context) error {
		p, err := e.own.RolloutPolicies(e.ns).Get(ctx, name, metav1.GetOptions{})
		if err == nil && p.Status.ObservedGeneration != p.Generation {
			err = fmt.Errorf("its status is %+v", p.Status)
		}
		return err
	})
}

// daemon makes a DaemonSet that mounts the ConfigMaps, and waits until all its pods are there.
func (e *edge) daemon(name string, configMaps ...string) {
	e.t.Helper()
	labels := map[string]string{"app": name}
	pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "demo:v1"}}}
	for i, m := range configMaps {
		optional := true
		source := corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: m}, Optional: &optional}
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: fmt.Sprint("v", i), VolumeSource: corev1.VolumeSource{ConfigMap: &source}})
	}
	_, err := e.Client.AppsV1().DaemonSets(e.ns).Create(e.t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
		},
	}, metav1.CreateOptions{})
	e.must(err)
	e.Eventually("the DaemonSet is everywhere", func(ctx context.Context) error {
		ds, err := e.Client.AppsV1().DaemonSets(e.ns).Get(ctx, name, metav1.GetOptions{})
		if err == nil && ds.Status.NumberAvailable != edgeNodes {
			err = fmt.Errorf("%+v", ds.Status)
		}
		return err
	})
}

// runs is what most tests begin with: a DaemonSet "logs" under a policy, whose pods all read "good" from copies.
func (e *edge) runs(policy string) {
	e.t.Helper()
	e.allow()
	e.policy("logs", policy)
	e.daemon("logs", "agent")
	e.phase("logs", v1alpha1.PhaseComplete)
	e.copied("logs")
	e.reads("logs", map[string]int{"good": edgeNodes})
}

// copied waits until each pod reads a copy.
func (e *edge) copied(daemon string) {
	e.t.Helper()
	e.Eventually("pods of "+daemon+" read copies", func(ctx context.Context) error {
		pods, err := e.pods(ctx, daemon)
		if err == nil && slices.ContainsFunc(pods, func(p corev1.Pod) bool { return mounts(&p) == "agent" }) {
			err = fmt.Errorf("one reads the author's object")
		}
		return err
	})
}

// pods are those of a DaemonSet that nobody has deleted.
func (e *edge) pods(ctx context.Context, daemon string) ([]corev1.Pod, error) {
	list, err := e.Client.CoreV1().Pods(e.ns).List(ctx, metav1.ListOptions{LabelSelector: "app=" + daemon})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil }), nil
}

// mounts is the ConfigMap that a pod's first volume mounts.
func mounts(p *corev1.Pod) string { return p.Spec.Volumes[0].ConfigMap.Name }

// value is what the ConfigMap says; "none" without one.
func (e *edge) value(ctx context.Context, name string) (string, error) {
	m, err := e.Client.CoreV1().ConfigMaps(e.ns).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "none", nil
	}
	if err != nil {
		return "", err
	}
	return m.Data["agent.conf"], nil
}

// reads waits until so many pods read each value, and returns the pods' UIDs by node.
func (e *edge) reads(daemon string, want map[string]int) (uids map[string]types.UID) {
	e.t.Helper()
	e.Eventually(fmt.Sprintf("pods of %s read %v", daemon, want), func(ctx context.Context) error {
		pods, err := e.pods(ctx, daemon)
		if err != nil {
			return err
		}
		got := map[string]int{}
		uids = map[string]types.UID{}
		for i := range pods {
			value, err := e.value(ctx, mounts(&pods[i]))
			if err != nil {
				return err
			}
			got[value]++
			uids[pods[i].Spec.NodeName] = pods[i].UID
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("they read %v", got)
		}
		return nil
	})
	return uids
}

// phase waits until a rollout says so, and returns it.
func (e *edge) phase(daemon string, want v1alpha1.Phase) (r *v1alpha1.DaemonSetRollout) {
	e.t.Helper()
	e.Eventually(fmt.Sprintf("the rollout of %s is %s", daemon, want), func(ctx context.Context) (err error) {
		r, err = e.own.DaemonSetRollouts(e.ns).Get(ctx, daemon, metav1.GetOptions{})
		if err == nil && r.Status.Phase != want {
			err = fmt.Errorf("it is %s: %s, content %+v", r.Status.Phase, r.Status.Message, r.Status.Content)
		}
		return err
	})
	return r
}

// says waits until the rollout's content is not followed for such a reason; "" waits until it is followed.
func (e *edge) says(words string) {
	e.t.Helper()
	e.Eventually(fmt.Sprintf("the rollout says %q", words), func(ctx context.Context) error {
		r, err := e.own.DaemonSetRollouts(e.ns).Get(ctx, "logs", metav1.GetOptions{})
		if err != nil {
			return err
		}
		said := ""
		if r.Status.Content != nil {
			said = r.Status.Content.Message
		}
		if (words == "") != (said == "") || !strings.Contains(said, words) {
			return fmt.Errorf("it says %q: %s", said, r.Status.Message)
		}
		return nil
	})
}

// approve lets a change that waits behind its first node go on.
func (e *edge) approve(daemon string) {
	e.t.Helper()
	e.approveStep(daemon, e.phase(daemon, v1alpha1.PhaseWaitingForApproval), "canary")
}

func (e *edge) approveStep(daemon string, r *v1alpha1.DaemonSetRollout, step string) {
	e.t.Helper()
	body := fmt.Sprintf(`{"spec":{"approved":{"revision":%q,"digest":%q,"step":%q}}}`, r.Status.TargetRevision, r.Status.TargetDigest, step)
	_, err := e.own.DaemonSetRollouts(e.ns).Patch(e.t.Context(), daemon, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	e.must(err)
}

// copies are the names of what a DaemonSet owns as content, copies and manifests.
func (e *edge) copies(ctx context.Context, daemon string) (out []string, err error) {
	list, err := e.Client.CoreV1().ConfigMaps(e.ns).List(ctx, metav1.ListOptions{LabelSelector: content.Label})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if owner := metav1.GetControllerOf(&list.Items[i]); owner != nil && owner.Name == daemon {
			out = append(out, list.Items[i].Name)
		}
	}
	slices.Sort(out)
	return out, nil
}

// restart deletes one pod of a DaemonSet that reads a value, and waits until its node has another.
func (e *edge) restart(daemon, reading string) (node string) {
	e.t.Helper()
	pods, err := e.pods(e.t.Context(), daemon)
	e.must(err)
	for i := range pods {
		p := &pods[i]
		value, err := e.value(e.t.Context(), mounts(p))
		e.must(err)
		if value != reading {
			continue
		}
		e.must(e.Client.CoreV1().Pods(e.ns).Delete(e.t.Context(), p.Name, metav1.DeleteOptions{}))
		e.Eventually("the node has another pod", func(ctx context.Context) error {
			now, err := e.pods(ctx, daemon)
			if err == nil && !slices.ContainsFunc(now, func(n corev1.Pod) bool { return n.Spec.NodeName == p.Spec.NodeName && n.UID != p.UID }) {
				err = fmt.Errorf("it has none")
			}
			return err
		})
		return p.Spec.NodeName
	}
	e.t.Fatalf("no pod of %s reads %q", daemon, reading)
	return ""
}

// same wants the pods that were there to be there still, but for some nodes.
func (e *edge) same(before, after map[string]types.UID, but ...string) {
	e.t.Helper()
	for node, uid := range before {
		if !slices.Contains(but, node) && after[node] != uid {
			e.t.Errorf("the pod on %s was made again", node)
		}
	}
}

// Each of two DaemonSets has copies of its own of the one ConfigMap, and goes its own way.
func sharedConfigMap(e *edge) {
	e.policy("other", byItself)
	e.runs(byHand)
	e.daemon("other", "agent")
	e.phase("other", v1alpha1.PhaseComplete)
	e.reads("other", map[string]int{"good": edgeNodes})
	e.write("new")
	e.phase("logs", v1alpha1.PhaseWaitingForApproval)
	e.reads("other", map[string]int{"new": edgeNodes})
	e.phase("other", v1alpha1.PhaseComplete)
	e.reads("logs", map[string]int{"good": edgeNodes - 1, "new": 1})
	used := map[string]string{}
	for _, daemon := range []string{"logs", "other"} {
		pods, err := e.pods(e.t.Context(), daemon)
		e.must(err)
		for i := range pods {
			name := mounts(&pods[i])
			m, err := e.Client.CoreV1().ConfigMaps(e.ns).Get(e.t.Context(), name, metav1.GetOptions{})
			e.must(err)
			if owner := metav1.GetControllerOf(m); owner == nil || owner.Name != daemon {
				e.t.Errorf("%s, which pods of %s read, is owned by %+v", name, daemon, owner)
			}
			if was := used[name]; was != "" && was != daemon {
				e.t.Errorf("both DaemonSets read %s", name)
			}
			used[name] = daemon
		}
	}
	before := e.reads("logs", map[string]int{"good": edgeNodes - 1, "new": 1})
	e.must(e.Client.AppsV1().DaemonSets(e.ns).Delete(e.t.Context(), "other", metav1.DeleteOptions{}))
	e.gone("other")
	e.same(before, e.reads("logs", map[string]int{"good": edgeNodes - 1, "new": 1}))
	e.approve("logs")
	e.reads("logs", map[string]int{"new": edgeNodes})
	e.phase("logs", v1alpha1.PhaseComplete)
}

// gone waits until nothing of a DaemonSet is left.
func (e *edge) gone(daemon string) {
	e.t.Helper()
	e.Eventually("pods and copies of "+daemon+" are gone", func(ctx context.Context) error {
		pods, err := e.pods(ctx, daemon)
		if err != nil {
			return err
		}
		copies, err := e.copies(ctx, daemon)
		if err == nil && len(pods)+len(copies) > 0 {
			err = fmt.Errorf("%d pods are left, and %v", len(pods), copies)
		}
		return err
	})
}

// middle has a change of content wait behind its first node.
func (e *edge) middle() (uids map[string]types.UID) {
	e.t.Helper()
	e.runs(byHand)
	e.write("new")
	e.phase("logs", v1alpha1.PhaseWaitingForApproval)
	return e.reads("logs", map[string]int{"good": edgeNodes - 1, "new": 1})
}

func (e *edge) deletePolicy() {
	e.t.Helper()
	e.must(e.own.RolloutPolicies(e.ns).Delete(e.t.Context(), "logs", metav1.DeleteOptions{}))
}

// unfollowed waits until the controller knows that no policy is followed any more.
func (e *edge) unfollowed() {
	e.t.Helper()
	e.Eventually("the controller knows that the policy is gone", func(ctx context.Context) error {
		r, err := e.own.DaemonSetRollouts(e.ns).Get(ctx, "logs", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil && !meta.IsStatusConditionTrue(r.Status.Conditions, rollouts.PolicyGone) {
			err = fmt.Errorf("%s: %s", r.Status.Phase, r.Status.Message)
		}
		return err
	})
}

// No pod restarts when the policy goes; each keeps its copy until it is next made, then it reads the author's object.
func policyGoes(e *edge) {
	e.runs(byItself)
	before := e.reads("logs", map[string]int{"good": edgeNodes})
	e.deletePolicy()
	e.unfollowed()
	e.write("free")
	node := e.restart("logs", "good")
	e.same(before, e.reads("logs", map[string]int{"good": edgeNodes - 1, "free": 1}), node)
}

// Who deletes a policy in the middle of a change lets nothing go on by that: until somebody approves it each node keeps
// the pod that it has, and a pod that is lost comes back with the stable content.
func policyGoesInTheMiddle(e *edge) {
	before := e.middle()
	e.deletePolicy()
	e.phase("logs", v1alpha1.PhasePaused)
	lost := e.restart("logs", "good")
	e.same(before, e.reads("logs", map[string]int{"good": edgeNodes - 1, "new": 1}), lost)
	e.restart("logs", "new")
	e.reads("logs", map[string]int{"good": edgeNodes})
	e.approveStep("logs", e.phase("logs", v1alpha1.PhasePaused), "WithoutPolicy")
	e.unfollowed()
	e.write("free")
	e.restart("logs", "good")
	e.reads("logs", map[string]int{"good": edgeNodes - 1, "free": 1})
}

// Content is turned off in steps, as it is turned on, but restarts nothing.
func contentIsTurnedOff(e *edge) {
	before := e.middle()
	_, err := e.own.RolloutPolicies(e.ns).Patch(e.t.Context(), "logs", types.MergePatchType, []byte(`{"spec":{"content":null}}`), metav1.PatchOptions{})
	e.must(err)
	e.Eventually("the target is without content", func(ctx context.Context) error {
		r, err := e.own.DaemonSetRollouts(e.ns).Get(ctx, "logs", metav1.GetOptions{})
		if err == nil && content.IDOf(r.Status.TargetRevision) != "" {
			err = fmt.Errorf("it is %s", r.Status.TargetRevision)
		}
		return err
	})
	e.approve("logs")
	e.phase("logs", v1alpha1.PhaseComplete)
	e.free(before)
}

// free is what holds where content is no part of revisions any more, in the middle of a change to "new".
func (e *edge) free(before map[string]types.UID) {
	e.t.Helper()
	e.write("free")
	node := e.restart("logs", "good")
	pods, err := e.pods(e.t.Context(), "logs")
	e.must(err)
	for i := range pods {
		if p := &pods[i]; (mounts(p) == "agent") != (p.Spec.NodeName == node) {
			e.t.Errorf("the pod on %s mounts %s; %s alone has a new pod", p.Spec.NodeName, mounts(p), node)
		}
	}
	e.same(before, e.reads("logs", map[string]int{"good": edgeNodes - 2, "new": 1, "free": 1}), node)
}

// Pods do not notice that a copy is deleted: it is made again of what was known.
func copyIsDeleted(e *edge) {
	e.runs(byHand)
	e.write("new")
	e.phase("logs", v1alpha1.PhaseWaitingForApproval)
	want := map[string]int{"good": edgeNodes - 1, "new": 1}
	before := e.reads("logs", want)
	names, err := e.copies(e.t.Context(), "logs")
	e.must(err)
	uids := map[string]types.UID{}
	for _, name := range names {
		m, err := e.Client.CoreV1().ConfigMaps(e.ns).Get(e.t.Context(), name, metav1.GetOptions{})
		e.must(err)
		uids[name] = m.UID
		e.must(e.Client.CoreV1().ConfigMaps(e.ns).Delete(e.t.Context(), name, metav1.DeleteOptions{}))
	}
	if len(names) != 4 {
		e.t.Errorf("the copies are %v, want those of two contents", names)
	}
	for _, name := range names {
		e.Eventually(name+" is made again", func(ctx context.Context) error {
			m, err := e.Client.CoreV1().ConfigMaps(e.ns).Get(ctx, name, metav1.GetOptions{})
			if err == nil && m.UID == uids[name] {
				err = fmt.Errorf("it was never deleted")
			}
			return err
		})
	}
	e.says("")
	e.same(before, e.reads("logs", want))
	e.approve("logs")
	e.reads("logs", map[string]int{"new": edgeNodes})
}

// That the object is gone is a change, which waits behind its first node; with the same data again it is taken back.
func configMapComesBack(e *edge) {
	e.runs(byHand)
	before := e.reads("logs", map[string]int{"good": edgeNodes})
	e.remove()
	r := e.phase("logs", v1alpha1.PhaseWaitingForApproval)
	if want := []string{"ConfigMap agent is gone"}; !slices.Equal(r.Status.Content.Changes, want) {
		e.t.Errorf("the changes are %q, want %q", r.Status.Content.Changes, want)
	}
	during := e.reads("logs", map[string]int{"good": edgeNodes - 1, "none": 1})
	var canary []string
	for node, uid := range during {
		if before[node] != uid {
			canary = append(canary, node)
		}
	}
	e.isNobodys()
	e.make("good")
	e.phase("logs", v1alpha1.PhaseComplete)
	e.same(before, e.reads("logs", map[string]int{"good": edgeNodes}), canary...)
	if len(canary) != 1 {
		e.t.Errorf("pods were made on %v, want one", canary)
	}
}

// isNobodys wants just one pod to mount what is not there, by a name that nobody can make and all can ask for.
func (e *edge) isNobodys() {
	e.t.Helper()
	maps, missing := e.Client.CoreV1().ConfigMaps(e.ns), 0
	pods, err := e.pods(e.t.Context(), "logs")
	e.must(err)
	for i := range pods {
		name := mounts(&pods[i])
		only := metav1.ListOptions{FieldSelector: "metadata.name=" + name}
		list, err := maps.List(e.t.Context(), only)
		e.must(err)
		if len(list.Items) > 0 {
			continue
		}
		missing++
		_, err = maps.Create(e.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) {
			e.t.Errorf("somebody makes ConfigMap %s: %v", name, err)
		}
		w, err := maps.Watch(e.t.Context(), only)
		e.must(err)
		w.Stop()
	}
	if missing != 1 {
		e.t.Errorf("%d pods mount what is not there", missing)
	}
}

// What cannot be content changes nothing; a pod that is lost comes back with what it had.
func objectTooBig(e *edge) {
	e.runs(byItself)
	before := e.reads("logs", map[string]int{"good": edgeNodes})
	e.write(strings.Repeat("x", content.MaxBytes)) // the API does not count the key
	e.says("ConfigMap agent has 1048586 bytes; content can have 1048576")
	node := e.restart("logs", "good")
	e.same(before, e.reads("logs", map[string]int{"good": edgeNodes}), node)
	e.write("small")
	e.reads("logs", map[string]int{"small": edgeNodes})
	e.phase("logs", v1alpha1.PhaseComplete)
	e.says("")
}

func tooManyObjects(e *edge) {
	e.runs(byItself)
	before := e.reads("logs", map[string]int{"good": edgeNodes})
	patch := func(n int) {
		var volumes []string
		for i := range n {
			volumes = append(volumes, fmt.Sprintf(`{"name":"more%d","configMap":{"name":"more%d","optional":true}}`, i, i))
		}
		body := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"n":"%d"}},"spec":{"volumes":[
			{"name":"v0","configMap":{"name":"agent"}},%s]}}}}`, n, strings.Join(volumes, ","))
		_, err := e.Client.AppsV1().DaemonSets(e.ns).Patch(e.t.Context(), "logs", types.MergePatchType, []byte(body), metav1.PatchOptions{})
		e.must(err)
	}
	patch(content.MaxObjects)
	e.says("the template names 21 ConfigMaps and Secrets; at most 20 can be content")
	e.same(before, e.reads("logs", map[string]int{"good": edgeNodes}))
	patch(content.MaxObjects - 1)
	e.says("")
	e.Eventually("each pod has the new template", func(ctx context.Context) error {
		pods, err := e.pods(ctx, "logs")
		if err == nil && slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.Annotations["n"] != "19" }) {
			err = fmt.Errorf("one has not")
		}
		return err
	})
	e.reads("logs", map[string]int{"good": edgeNodes})
}

// Without the right to read or write copies nothing changes, and the rollout names the role that is missing.
func rightsComeAndGo(e *edge) {
	e.daemon("logs", "agent")
	e.policy("logs", byItself)
	e.says("a RoleBinding to ClusterRole everynode:content in the namespace allows it")
	before := e.reads("logs", map[string]int{"good": edgeNodes})
	e.allow()
	e.phase("logs", v1alpha1.PhaseComplete)
	e.says("")
	e.copied("logs")
	e.phase("logs", v1alpha1.PhaseComplete)
	after := e.reads("logs", map[string]int{"good": edgeNodes})
	for node, uid := range after {
		if before[node] == uid {
			e.t.Errorf("the pod on %s reads the author's object, and now a copy", node)
		}
	}
	e.must(e.Client.RbacV1().RoleBindings(e.ns).Delete(e.t.Context(), "content", metav1.DeleteOptions{}))
	e.write("new")
	e.says("forbidden")
	e.same(after, e.reads("logs", map[string]int{"good": edgeNodes}))
	e.allow()
	e.reads("logs", map[string]int{"new": edgeNodes})
	e.says("")
}

// Copies go with their DaemonSet. The author's object stays.
func copiesGoWithTheirDaemonSet(e *edge) {
	e.runs(byHand)
	e.write("new")
	e.phase("logs", v1alpha1.PhaseWaitingForApproval)
	e.reads("logs", map[string]int{"good": edgeNodes - 1, "new": 1})
	e.must(e.Client.AppsV1().DaemonSets(e.ns).Delete(e.t.Context(), "logs", metav1.DeleteOptions{}))
	e.gone("logs")
	if value, err := e.value(e.t.Context(), "agent"); err != nil || value != "new" {
		e.t.Errorf("the author's object says %q, %v", value, err)
	}
}

// After a rollback pods refer to the old copy, also those that are made later, whatever becomes of the author's object.
func rolledBackKeepsItsCopy(e *edge) {
	e.runs(byItself)
	before := e.reads("logs", map[string]int{"good": edgeNodes})
	pods, err := e.pods(e.t.Context(), "logs")
	e.must(err)
	old := mounts(&pods[0])
	e.write("bad")
	r := e.phase("logs", v1alpha1.PhaseRolledBack)
	if len(r.Status.FailedRevisions) == 0 {
		e.t.Errorf("nothing has failed: %+v", r.Status)
	}
	after := e.reads("logs", map[string]int{"good": edgeNodes})
	touched := slices.DeleteFunc(slices.Sorted(maps.Keys(before)), func(n string) bool { return before[n] == after[n] })
	if len(touched) != 1 {
		e.t.Errorf("nodes %v were touched, want one", touched)
	}
	e.restart("logs", "good")
	pods, err = e.pods(e.t.Context(), "logs")
	e.must(err)
	for i := range pods {
		if mounts(&pods[i]) != old {
			e.t.Errorf("%s mounts %s, want %s", pods[i].Name, mounts(&pods[i]), old)
		}
	}
}

// The newest content is what goes out; what it overtakes gets no further than it was.
func secondEditInTheMiddle(e *edge) {
	e.runs(byHand)
	e.write("first")
	e.phase("logs", v1alpha1.PhaseWaitingForApproval)
	during := e.reads("logs", map[string]int{"good": edgeNodes - 1, "first": 1})
	e.write("second")
	waiting := e.reads("logs", map[string]int{"good": edgeNodes - 1, "second": 1})
	other := 0
	for node, uid := range waiting {
		if during[node] != uid {
			other++
		}
	}
	if other != 1 {
		e.t.Errorf("%d nodes were touched, want the canary", other)
	}
	e.approve("logs")
	e.reads("logs", map[string]int{"second": edgeNodes})
	r := e.phase("logs", v1alpha1.PhaseComplete)
	if r.Status.StableRevision != r.Status.TargetRevision {
		e.t.Errorf("the status is %+v", r.Status)
	}
}
