package webhook

import (
	"context"
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/history"
	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
)

// pod answers for a pod that is made for a DaemonSet.
func (s *Server) pod(ctx context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, string) {
	if r.UserInfo.Username != s.cfg.Maker {
		return s.stranger(ctx, r)
	}
	a, err := s.decide(ctx, r)
	if err != nil {
		a = admit.Answer{Verb: admit.Unknown, Why: err.Error()}
	}
	out := admitted()
	switch a.Verb {
	case admit.Unknown:
		klog.FromContext(ctx).Info("Cannot tell what a pod is to be", "namespace", r.Namespace, "why", a.Why, "refused",
			s.cfg.Fail)
		if s.cfg.Fail {
			out = refused(a.Why)
		}
	case admit.Later:
		out = refused(a.Why)
	case admit.Rewrite:
		klog.FromContext(ctx).V(3).Info("Gave a pod its node's revision", "namespace", r.Namespace, "what", a.Why)
		out.Patch = a.Patch
	}
	return out, a.Verb.String()
}

// decide reads what a pod's revision follows from. The leader writes that a step has begun before it deletes a pod, so
// what is read after that cannot miss it.
func (s *Server) decide(ctx context.Context, r *admissionv1.AdmissionRequest) (admit.Answer, error) {
	var pod corev1.Pod
	err := json.Unmarshal(r.Object.Raw, &pod)
	if err != nil {
		return admit.Answer{}, fmt.Errorf("read the pod: %w", err)
	}
	owner := metav1.GetControllerOf(&pod)
	if owner == nil {
		return admit.Answer{Why: "nothing controls it"}, nil
	}
	is, err := s.changeOf(ctx, r.Namespace, owner)
	if err != nil || is == nil {
		return admit.Answer{Why: "its DaemonSet follows no policy"}, err
	}
	ds, rollout := is.ds, is.rollout
	made := pod.Labels[appsv1.ControllerRevisionHashLabelKey]
	if rollout == nil || rollout.Status.TargetRevision == "" {
		return s.early(ctx, r, ds, made)
	}
	s.locked(func() { delete(s.lacks, nameOf(ds)) })
	status := &rollout.Status
	known, err := s.revisionsOf(ctx, r.Namespace, owner.UID, made, content.TemplateOf(status.StableRevision),
		content.TemplateOf(status.TargetRevision))
	if err != nil {
		return admit.Answer{}, err
	}
	in := admit.NewPod{Pod: r.Object.Raw, Revisions: known}
	in.Want, err = s.assigned(ctx, r, is, revisionOf(known, made))
	if err != nil {
		return admit.Answer{}, err
	}
	if in.Want == "" && status.Images != nil {
		in.Want = made // it is made all the same, and its images are pinned
	}
	in.Images, in.First = admit.Pins(status, in.Want)
	in.First = in.First && s.LetsPodsWait()
	err = s.complete(ctx, ds, &in)
	switch {
	case apierrors.IsForbidden(err):
		return admit.Answer{}, err // whoever took the right away wants none of this
	case err != nil:
		// As it is it would read what nobody has let go out, and may be of a template that nobody has.
		return admit.Answer{Verb: admit.Later, Why: err.Error()}, nil
	}
	return admit.Pod(in), nil
}

// complete adds what the pod's revision has beside its template: content, and its node's variant.
func (s *Server) complete(ctx context.Context, ds *appsv1.DaemonSet, in *admit.NewPod) (err error) {
	if id := content.IDOf(in.Want); id != "" {
		in.Members, err = s.contents.members(ctx, ds, id)
		if err != nil {
			return err
		}
	}
	in.Variant, err = s.variants.outcome(ctx, ds, in.Want, in.Revisions, admit.Node(in.Pod))
	return err
}

// SetNode, DeleteNode, SetPod, DeletePod and DeleteSet tell of what is seen, and SetRevision and DeleteRevision too.
func (s *Server) SetNode(n *corev1.Node) { s.locked(func() { s.steps.SetNode(n) }) }

// DeleteNode tells that a node is gone.
func (s *Server) DeleteNode(name string) { s.locked(func() { s.steps.DeleteNode(name) }) }

// SetPod tells of a pod.
func (s *Server) SetPod(p *corev1.Pod) { s.locked(func() { s.steps.SetPod(p) }) }

// DeletePod tells that a pod is gone.
func (s *Server) DeletePod(p *corev1.Pod) { s.locked(func() { s.steps.DeletePod(p.UID) }) }

// DeleteSet tells that a DaemonSet is gone.
func (s *Server) DeleteSet(ds *appsv1.DaemonSet) {
	s.locked(func() {
		s.steps.DeleteSet(ds.UID)
		delete(s.sets, nameOf(ds))
		delete(s.follows, nameOf(ds))
		delete(s.lacks, nameOf(ds))
	})
}

// SetRevision tells of a revision, or a copy that a rollout keeps.
func (s *Server) SetRevision(r *appsv1.ControllerRevision) { s.locked(func() { s.cache.set(r) }) }

// DeleteRevision tells that a revision is gone.
func (s *Server) DeleteRevision(r *appsv1.ControllerRevision) {
	s.locked(func() { s.cache.drop(r.UID) })
}

func (s *Server) locked(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// revisionsOf are the revisions of a DaemonSet, copies that its rollout keeps included. Where one that is needed is not
// known they are read from the API.
func (s *Server) revisionsOf(
	ctx context.Context, namespace string, set types.UID, needed ...string,
) ([]*appsv1.ControllerRevision, error) {
	s.mu.Lock()
	known := s.cache.of(set)
	s.mu.Unlock()
	if hasAll(known, needed) {
		return known, nil
	}
	list, err := s.cfg.Client.AppsV1().ControllerRevisions(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the revisions of namespace %s: %w", namespace, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range list.Items {
		s.cache.set(&list.Items[i])
	}
	return s.cache.of(set), nil
}

func hasAll(known []*appsv1.ControllerRevision, needed []string) bool {
	for _, hash := range needed {
		if hash != "" && revisionOf(known, hash) == nil {
			return false
		}
	}
	return true
}

func revisionOf(known []*appsv1.ControllerRevision, hash string) *appsv1.ControllerRevision {
	for _, r := range known {
		if history.HashOf(r) == hash {
			return r
		}
	}
	return nil
}

// revisions are ControllerRevisions by the DaemonSet that they are of.
type revisions struct {
	sets map[types.UID]map[types.UID]*appsv1.ControllerRevision
	at   map[types.UID]types.UID
}

func newRevisions() revisions {
	return revisions{sets: map[types.UID]map[types.UID]*appsv1.ControllerRevision{}, at: map[types.UID]types.UID{}}
}

func (c *revisions) set(r *appsv1.ControllerRevision) {
	set := belongings.OwnerOf(r)
	if set == "" {
		set = types.UID(r.Labels[rollouts.OwnerLabel])
	}
	c.drop(r.UID)
	if set == "" {
		return
	}
	if c.sets[set] == nil {
		c.sets[set] = map[types.UID]*appsv1.ControllerRevision{}
	}
	c.sets[set][r.UID], c.at[r.UID] = r, set
}

func (c *revisions) drop(uid types.UID) {
	set, known := c.at[uid]
	if !known {
		return
	}
	delete(c.at, uid)
	delete(c.sets[set], uid)
	if len(c.sets[set]) == 0 {
		delete(c.sets, set)
	}
}

func (c *revisions) of(set types.UID) []*appsv1.ControllerRevision {
	var out []*appsv1.ControllerRevision
	for _, r := range c.sets[set] {
		out = append(out, r)
	}
	return out
}
