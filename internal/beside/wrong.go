package beside

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/history"
	"github.com/everynode/everynode/internal/change/pinning"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
	"github.com/everynode/everynode/internal/objects/pod"
)

// countWrong counts the pods of a DaemonSet that have a revision which is not their node's, and tells of it. Where
// there can be none, pods are not looked at.
func (g *Guest) countWrong(ctx context.Context, objects client.Reader, s *seen, ds *appsv1.DaemonSet) error {
	pods, err := g.wrong(ctx, objects, s, ds)
	if err != nil {
		return err
	}
	g.tellWrong(ds, pods)
	return nil
}

// tellWrong shows how many of a DaemonSet's pods are wrong, and makes an event where one was not known to be.
func (g *Guest) tellWrong(ds *appsv1.DaemonSet, pods []*corev1.Pod) {
	key := ds.Namespace + "/" + ds.Name
	before, now, isNew := g.wrongPods[key], map[types.UID]bool{}, false
	var nodes []string
	for _, p := range pods {
		if !now[p.UID] { // its revision and its images may both be wrong
			now[p.UID] = true
			nodes = append(nodes, pod.TargetNode(p))
			isNew = isNew || !before[p.UID]
		}
	}
	g.wrongPods[key] = now
	g.webhook.ShowWrong(ds.Namespace, ds.Name, len(nodes))
	if isNew {
		slices.Sort(nodes)
		some := strings.Join(nodes[:min(3, len(nodes))], ", ")
		g.cfg.Recorder.Eventf(ds, corev1.EventTypeWarning, WrongRevision,
			"%d nodes, such as %s, got a pod of a revision or with images that are not theirs, as nobody answered "+
				"the API server; they are put right within the limits, and what came before its step first", len(nodes), some)
	}
}

// forgetWrong drops what was told of DaemonSets that are not there any more.
func (g *Guest) forgetWrong(sets []appsv1.DaemonSet) {
	there := map[string]bool{}
	for i := range sets {
		there[sets[i].Namespace+"/"+sets[i].Name] = true
	}
	for key := range g.wrongPods {
		if !there[key] {
			namespace, name, _ := strings.Cut(key, "/")
			g.webhook.ForgetWrong(namespace, name)
			delete(g.wrongPods, key)
		}
	}
}

// wrong are the pods that have a revision which is not their node's, or other bits than theirs.
func (g *Guest) wrong(ctx context.Context, objects client.Reader, s *seen, ds *appsv1.DaemonSet) ([]*corev1.Pod,
	error) {
	rollout := s.rolloutOf(ds)
	policy := rolloutpolicy.Choose(s.policies, ds.Namespace, ds.Labels)
	if rollout == nil || policy == nil || !admit.Taken(ds) ||
		!admit.MayBeWrong(&rollout.Status) && rollout.Status.Images == nil {
		return nil, nil
	}
	at := slices.IndexFunc(s.revisions[ds.UID], func(r *appsv1.ControllerRevision) bool {
		return history.HashOf(r) == content.TemplateOf(rollout.Status.TargetRevision)
	})
	if at < 0 {
		return nil, nil // the leader has not seen the newest template yet
	}
	var pods corev1.PodList
	err := objects.List(ctx, &pods, client.InNamespace(ds.Namespace), client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("read the pods of namespace %s: %w", ds.Namespace, err)
	}
	var own []*corev1.Pod
	for i := range pods.Items {
		p := &pods.Items[i]
		if belongings.OwnerOf(p) == ds.UID && p.DeletionTimestamp == nil {
			own = append(own, p)
		}
	}
	wrong, err := g.webhook.Wrong(ds.UID, policy, s.revisions[ds.UID][at], &rollout.Status, own)
	return append(wrong, strays(s.revisions[ds.UID], &rollout.Status, own)...), err
}

// strays are the pods that have the newest template, and run other bits than those of its digests.
func strays(revisions []*appsv1.ControllerRevision, s *v1alpha1.DaemonSetRolloutStatus, pods []*corev1.Pod) (
	out []*corev1.Pod) {
	hash := content.TemplateOf(s.TargetRevision)
	template, err := admit.SpecOf(revisions, hash)
	known := pinning.Of(s.Images, hash)
	if err != nil || known == nil {
		return nil // nobody can tell
	}
	for _, p := range pods {
		is := p.Labels[appsv1.ControllerRevisionHashLabelKey] == hash
		if is && pinning.RunsOther(template, known, p) {
			out = append(out, p)
		}
	}
	return out
}
