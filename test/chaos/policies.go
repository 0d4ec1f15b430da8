package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/simulator/illness"
	"github.com/everynode/everynode/test/chaos/author"
	"github.com/everynode/everynode/test/chaos/ground"
	"github.com/everynode/everynode/test/chaos/history"
	"github.com/everynode/everynode/test/chaos/history/wish"
	"github.com/everynode/everynode/test/chaos/plan"
	"github.com/everynode/everynode/test/chaos/remedy"
	"github.com/everynode/everynode/test/chaos/strategies"
)

// The labels by which policies tell nodes apart.
const (
	zoneLabel  = corev1.LabelTopologyZone
	rackLabel  = "rack"
	fleetLabel = "fleet"
)

// crash is what ails the pods of a template whose containers end.
const crash = `{crash: {after: 50ms, exitCode: 2}}`

// policies is how many names of policies a round uses.
const policies = 2

func policed(op plan.Op) bool {
	switch op {
	case plan.MakePolicy, plan.EditPolicy, plan.SpoilPolicy, plan.DeletePolicy, plan.Pause, plan.Resume, plan.Approve, plan.Retry, plan.Abort, plan.DeleteRollout,
		plan.DeleteRevision, plan.PoorNodes, plan.FillDisks, plan.EditContent, plan.BadContent, plan.DeleteContent:
		return true
	}
	return false
}

// policed does something to a policy or a rollout.
func (u *user) policed(ctx context.Context, s plan.Step) (string, error) {
	switch s.Op {
	case plan.MakePolicy:
		return u.makePolicy(ctx, s)
	case plan.EditPolicy, plan.SpoilPolicy, plan.DeletePolicy:
		return u.editPolicy(ctx, s)
	case plan.DeleteRevision:
		return u.deleteRevision(ctx, s)
	case plan.PoorNodes:
		return u.labelNodes(ctx, s, ground.PoorLabel)
	case plan.FillDisks:
		return u.labelNodes(ctx, s, ground.FullLabel)
	case plan.DeleteContent:
		ref := u.author.Pick(s.Third)
		return ref.String(), u.author.Delete(ctx, ref)
	case plan.EditContent, plan.BadContent:
		value := author.Good(s.Pick)
		if s.Op == plan.BadContent {
			value = author.Bad
		}
		ref := u.author.Pick(s.Third)
		return ref.String() + " " + value, u.author.Write(ctx, ref, value)
	}
	return u.steer(ctx, s)
}

func (u *user) makePolicy(ctx context.Context, s plan.Step) (string, error) {
	p := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("policy-%d", s.Pick%policies), Namespace: namespace}}
	u.setPolicy(&p.Spec, s.Other, s.Third)
	created, err := u.cluster.own().RolloutPolicies(namespace).Create(ctx, p, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return "", nil
	}
	u.wrote("RolloutPolicy", p, created, err)
	return p.Name + " " + wish.Of(p), err
}

// setPolicy makes one of many policies.
func (u *user) setPolicy(spec *v1alpha1.RolloutPolicySpec, pick, other int) {
	number := func(n int) *intstr.IntOrString { return ptr.To(intstr.FromInt32(int32(n))) }
	canary := v1alpha1.Wave{Name: "canary", Nodes: &metav1.LabelSelector{MatchLabels: map[string]string{fleetLabel: "canary"}}, Soak: "1s"}
	zones := v1alpha1.Wave{Name: "zones", Each: zoneLabel, MaxUnavailable: number(2)}
	*spec = v1alpha1.RolloutPolicySpec{}
	switch pick % 6 {
	case 0, 1:
		canary.Approval = v1alpha1.ApprovalManual
		spec.Waves = []v1alpha1.Wave{canary, zones}
	case 2:
		zones.Soak, zones.MaxUnavailable = "1s", nil
		spec.Waves = []v1alpha1.Wave{canary, zones}
		if u.author != nil && other%2 > 0 {
			spec.Waves[1] = v1alpha1.Wave{Name: "more", Nodes: &metav1.LabelSelector{}, Ramp: &v1alpha1.Ramp{}}
		}
	case 3:
		zones.Approval = v1alpha1.ApprovalManual
		spec.Waves = []v1alpha1.Wave{zones}
	case 4:
		spec.Waves = []v1alpha1.Wave{{Name: "some", Count: ptr.To(int32(2)), SpreadBy: zoneLabel, Approval: v1alpha1.ApprovalManual}, canary}
	}
	strategies.Vary(spec, other, u.plan.Ramps, u.plan.Fetches)
	switch pick / 6 % 4 {
	case 0, 1:
		spec.Domains = []v1alpha1.Domain{{Key: rackLabel, MaxUnavailable: intstr.FromInt32(1)}}
	case 2:
		spec.Domains = []v1alpha1.Domain{{Key: zoneLabel, MaxUnavailable: intstr.FromInt32(2)}, {Key: rackLabel, MaxUnavailable: intstr.FromInt32(1)}}
	}
	u.author.Follow(spec, pick/24)
	share := intstr.FromString([]string{"20%", "40%"}[other%2])
	spec.Failure = v1alpha1.Failure{Max: &share, Min: ptr.To(int32(1 + other/2%2)), Restarts: ptr.To(int32(2)), StartDeadline: "6s"}
	if other/4%3 > 0 {
		spec.Failure.Then = v1alpha1.FailureRollback
	}
	faults := intstr.FromString("40%")
	spec.NodeFaults.Max = &faults
	if other/12%4 == 0 {
		spec.Pace.NodesPerMinute = ptr.To(int32(30))
	}
	if other/48%8 == 0 {
		spec.Windows = []v1alpha1.Window{strategies.Closed(time.Now())}
	}
	if other/plan.AllSets%5 == 0 {
		spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{appLabel: setName(0)}}
	}
}

func (u *user) editPolicy(ctx context.Context, s plan.Step) (string, error) {
	api := u.cluster.own().RolloutPolicies(namespace)
	list, err := api.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) == 0 {
		return "", err
	}
	p := list.Items[s.Pick%len(list.Items)].DeepCopy()
	switch s.Op {
	case plan.DeletePolicy:
		err := api.Delete(ctx, p.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
		u.deleted("RolloutPolicy", p, err)
		return p.Name, err
	case plan.SpoilPolicy:
		p.Spec.Windows = []v1alpha1.Window{{From: "00:00", To: "24:00", TimeZone: "Atlantis/Capital"}}
	default:
		u.setPolicy(&p.Spec, s.Other, s.Third)
	}
	updated, err := api.Update(ctx, p, metav1.UpdateOptions{})
	u.wrote("RolloutPolicy", p, updated, err)
	return p.Name + " " + wish.Of(p), err
}

// steer writes into a rollout what people want of it.
func (u *user) steer(ctx context.Context, s plan.Step) (string, error) {
	api := u.cluster.own().DaemonSetRollouts(namespace)
	list, err := api.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) == 0 {
		return "", err
	}
	r := list.Items[s.Pick%len(list.Items)].DeepCopy()
	status := &r.Status
	switch s.Op {
	case plan.DeleteRollout:
		err := api.Delete(ctx, r.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(r.UID))})
		u.deleted("DaemonSetRollout", r, err)
		return fmt.Sprintf("%s, which is %s", r.Name, status.Phase), err
	case plan.Pause:
		r.Spec.Paused = true
	case plan.Resume:
		r.Spec.Paused = false
	case plan.Approve:
		if status.Step == "" {
			return "", nil
		}
		r.Spec.Approved = remedy.Approval(r, status.Step)
		r.Spec.Approved.Change *= int64(s.Third % 2) // else as a client that knows no changes
		switch s.Other % 6 {
		case 0:
			r.Spec.Approved.Step = v1alpha1.AllSteps
		case 1:
			r.Spec.Approved.Step = v1alpha1.WithoutPolicy
		}
	case plan.Retry:
		if status.Phase != v1alpha1.PhaseHalted && status.Phase != v1alpha1.PhaseRolledBack {
			return "", nil
		}
		remedy.Retry(r)
	case plan.Abort:
		if status.StableRevision == status.TargetRevision {
			return "", nil
		}
		r.Spec.Abort = &v1alpha1.Abort{Revision: status.TargetRevision, Digest: status.TargetDigest}
	}
	return r.Name + " " + wish.Of(r), u.writeRollout(ctx, r)
}

func (u *user) writeRollout(ctx context.Context, r *v1alpha1.DaemonSetRollout) error {
	updated, err := u.cluster.own().DaemonSetRollouts(namespace).Update(ctx, r, metav1.UpdateOptions{})
	u.wrote("DaemonSetRollout", r, updated, err)
	return err
}

// guided is a DaemonSet whose changes follow a policy, with its rollout.
type guided struct {
	set     *appsv1.DaemonSet
	rollout *v1alpha1.DaemonSetRollout
}

// guidedSets lists the DaemonSets with a rollout that speaks of what is written now; of
// one without an error says so.
func (u *user) guidedSets(ctx context.Context) (out []guided, err error) {
	sets, err := u.sets(ctx)
	if err != nil {
		return nil, err
	}
	for i := range sets {
		d := &sets[i]
		r, err := u.cluster.own().DaemonSetRollouts(namespace).Get(ctx, d.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && r.Labels[history.OwnerLabel] != string(d.UID) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, guided{d, r})
	}
	return out, nil
}

// current says in what the rollout speaks of something else than what is written now.
func (g guided) current() error {
	s := &g.rollout.Status
	if s.DaemonSetGeneration != g.set.Generation || s.ObservedGeneration != g.rollout.Generation {
		return fmt.Errorf("rollout %s speaks of generation %d of %d, and of %d of %d of its own",
			g.set.Name, s.DaemonSetGeneration, g.set.Generation, s.ObservedGeneration, g.rollout.Generation)
	}
	if s.Phase == "" || s.Message == "" {
		return fmt.Errorf("rollout %s is %q and says %q", g.set.Name, s.Phase, s.Message)
	}
	return nil
}

// allComplete waits until all that users made is, before anything goes wrong. A machine
// that is busy may take longer than the policy allows.
func (u *user) allComplete(ctx context.Context) error {
	if err := u.mendPolicies(ctx, false); err != nil {
		return err
	}
	return until(ctx, "the rollouts to be complete", func(ctx context.Context) error {
		if err := u.letGoOn(ctx); err != nil {
			return err
		}
		all, err := u.guidedSets(ctx)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			return errors.New("no DaemonSet follows a policy")
		}
		for _, g := range all {
			if err := g.current(); err != nil {
				return err
			}
			if s := g.rollout.Status; s.Phase != v1alpha1.PhaseComplete {
				return fmt.Errorf("rollout %s is %s: %s", g.set.Name, s.Phase, s.Message)
			}
		}
		return nil
	})
}

// say waits until every rollout says where it is, and why.
func (u *user) say(ctx context.Context) error {
	var lines []string
	err := until(ctx, "the rollouts to say where they are", func(ctx context.Context) error {
		lines = nil
		all, err := u.guidedSets(ctx)
		if err != nil {
			return err
		}
		for _, g := range all {
			memory := history.PolicyGone(g.rollout)
			if memory || g.set.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
				continue
			}
			if err := g.current(); err != nil {
				return err
			}
			lines = append(lines, fmt.Sprintf("rollout %s is %s: %s", g.set.Name, g.rollout.Status.Phase, g.rollout.Status.Message))
		}
		return nil
	})
	for _, l := range lines {
		u.journal.note("%s", l)
	}
	return err
}

// healNodes makes sick nodes well, and takes those back that were cordoned in a round
// with policies, where they count as out of order.
func (u *user) healNodes(ctx context.Context) error {
	if err := u.mendPolicies(ctx, true); err != nil {
		return err
	}
	return until(ctx, "the nodes to be mended", func(ctx context.Context) error {
		nodes, err := u.cluster.api().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range nodes.Items {
			n := nodes.Items[i].DeepCopy()
			if slices.Contains(u.left, n.Name) { // a registration that was on its way came after it had left
				err := u.cluster.api().CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{})
				u.deleted("Node", n, err)
				u.journal.note("user: delete node %s, which left", n.Name)
				continue
			}
			guarded := n.Labels[rackLabel] != ""
			if !ground.Mend(n) && n.Annotations[illness.Annotation] == "" && !(guarded && n.Spec.Unschedulable) {
				continue
			}
			delete(n.Annotations, illness.Annotation)
			n.Spec.Unschedulable = n.Spec.Unschedulable && !guarded
			updated, err := u.cluster.api().CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{})
			u.wrote("Node", n, updated, err)
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
			u.journal.note("user: mend node %s", n.Name)
		}
		return nil
	})
}

// mendPolicies takes the windows away, and where nobody has time the pace.
func (u *user) mendPolicies(ctx context.Context, hurry bool) error {
	return until(ctx, "the policies to be mended", func(ctx context.Context) error {
		list, err := u.cluster.own().RolloutPolicies(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			p := list.Items[i].DeepCopy()
			paced := hurry && p.Spec.Pace.NodesPerMinute != nil
			if len(p.Spec.Windows) == 0 && !paced {
				continue
			}
			p.Spec.Windows = nil
			if paced {
				p.Spec.Pace = v1alpha1.Pace{}
			}
			updated, err := u.cluster.own().RolloutPolicies(namespace).Update(ctx, p, metav1.UpdateOptions{})
			u.wrote("RolloutPolicy", p, updated, err)
			if err != nil {
				return err
			}
			u.journal.note("user: mend policy %s", p.Name)
		}
		return nil
	})
}

// letGoOn does for each rollout that stands still what its phase asks for.
func (u *user) letGoOn(ctx context.Context) error {
	all, err := u.guidedSets(ctx)
	if err != nil {
		return err
	}
	for _, g := range all {
		r := g.rollout.DeepCopy()
		if remedy.NeedsRoom(r) {
			err := u.giveRoom(ctx, g.set)
			if err != nil {
				return err
			}
		}
		if g.current() != nil || g.set.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
			continue
		}
		what := remedy.Apply(r)
		if what == "" {
			continue
		}
		if err := u.writeRollout(ctx, r); err != nil && !refused(err) {
			return err
		}
		u.journal.note("user: %s %s, which is %s: %s", what, r.Name, r.Status.Phase, r.Status.Message)
	}
	return nil
}

// giveRoom has half of the nodes be changed at a time.
func (u *user) giveRoom(ctx context.Context, set *appsv1.DaemonSet) error {
	half := intstr.FromString("50%")
	d := set.DeepCopy()
	rolling := d.Spec.UpdateStrategy.RollingUpdate
	if rolling == nil || rolling.MaxUnavailable == nil || rolling.MaxSurge == nil {
		return nil
	}
	limit := rolling.MaxUnavailable
	if rolling.MaxSurge.String() != "0" {
		limit = rolling.MaxSurge
	}
	if limit.String() == half.String() {
		return nil
	}
	*limit = half
	updated, err := u.cluster.api().AppsV1().DaemonSets(namespace).Update(ctx, d, metav1.UpdateOptions{})
	u.wrote("DaemonSet", d, updated, err)
	if err != nil && !refused(err) {
		return err
	}
	u.journal.note("user: give %s more room", d.Name)
	return nil
}
