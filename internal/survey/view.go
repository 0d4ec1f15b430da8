package survey

import (
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
	"github.com/everynode/everynode/internal/history"
	"github.com/everynode/everynode/internal/node"
	"github.com/everynode/everynode/internal/podtemplate"
	"github.com/everynode/everynode/internal/rolloutpolicy"
)

// View is one DaemonSet.
type View struct {
	DaemonSet *appsv1.DaemonSet
	// Revision is the hash of its present template, Numbers those of all its revisions by hash.
	Revision string
	Numbers  map[string]int64
	// Policy is the one that counts, nil if none does, and Rules what it says; Broken is why it cannot be followed.
	Policy *v1alpha1.RolloutPolicy
	Rules  *rolloutpolicy.Policy
	Broken string
	// Steady is the policy that stands in for none. Known tells that there is a revision of the template.
	Steady *rolloutpolicy.Policy
	Known  bool
	// Rollout is the rollout's object, nil if there is none. Status is where the rollout stands by what was read now.
	Rollout *v1alpha1.DaemonSetRollout
	Status  v1alpha1.DaemonSetRolloutStatus

	// guided tells that changes follow a policy, or did when it went.
	guided    bool
	survey    *Survey
	revisions []*appsv1.ControllerRevision
	matrix    *matrix.Matrix
	// cells and seen are made when they are first asked for.
	cells map[string]matrix.CellSnapshot
	seen  map[types.UID]seenPod
	round int
}

// steady is the policy of a DaemonSet that has none: one step, and no halt.
func steady(locate rolloutpolicy.Locate) (*rolloutpolicy.Policy, error) {
	all, never := intstr.FromString("100%"), int32(math.MaxInt32)
	return rolloutpolicy.Compile(&v1alpha1.RolloutPolicySpec{
		Failure:    v1alpha1.Failure{Max: &all, Min: &never},
		NodeFaults: v1alpha1.NodeFaults{Max: &all},
	}, locate)
}

// View looks at one DaemonSet.
func (s *Survey) View(ds *appsv1.DaemonSet) (*View, error) {
	v := &View{DaemonSet: ds, Numbers: map[string]int64{}, survey: s, Rollout: s.Rollout(ds)}
	if err := v.findRevision(); err != nil {
		return nil, err
	}
	info, err := v.rollout()
	if err != nil {
		return nil, err
	}
	// Nothing is begun by looking.
	v.matrix = matrix.New(matrix.Config{BurstReplicas: -1})
	v.matrix.Step(matrix.Now{Time: s.Now})
	for _, n := range s.Nodes {
		v.matrix.Step(matrix.ProjectNode(n))
		v.matrix.Step(matrix.ProjectHealth(n))
	}
	v.matrix.Step(info)
	// Pods that are there before their DaemonSet are judged once, with it.
	for _, pods := range s.byOwner[ds.UID] {
		for _, p := range pods {
			v.matrix.Step(matrix.ProjectPod(p, ds.UID))
		}
	}
	placement := matrix.CompilePlacement(&ds.Spec.Template.Spec)
	v.matrix.Step(matrix.DaemonSetInfo{
		UID: ds.UID, Namespace: ds.Namespace, Name: ds.Name, Generation: ds.Generation, Revision: v.Revision,
		Placement: placement, Earlier: v.placements(placement), Strategy: belongings.StrategyOf(ds),
		MinReadySeconds: ds.Spec.MinReadySeconds, Reported: matrix.ProjectStatus(&ds.Status),
	})
	v.matrix.Ready() // what it would do is nobody's business here; it makes the rollout decide
	v.Status, _ = v.matrix.Rollout(ds.UID)
	return v, nil
}

// findRevision finds the hash of the present template, and the numbers of all.
func (v *View) findRevision() error {
	for _, r := range v.survey.Revisions {
		if belongings.OwnerOf(r) == v.DaemonSet.UID {
			v.revisions = append(v.revisions, r)
			v.Numbers[history.HashOf(r)] = r.Revision
		}
	}
	plan, err := history.Compute(history.Input{Owner: history.OfDaemonSet(v.DaemonSet), Revisions: v.revisions})
	if err != nil {
		return err
	}
	if plan.Current != nil {
		v.Revision, v.Known = history.HashOf(plan.Current), true
		return nil
	}
	v.Revision = podtemplate.Hash(&v.DaemonSet.Spec.Template, v.DaemonSet.Status.CollisionCount)
	v.Numbers[v.Revision] = plan.Create.Revision
	return nil
}

// placements are the placement rules of all revisions. Without a policy those of the present template hold for all nodes.
func (v *View) placements(present *matrix.Placement) *matrix.Placements {
	out := belongings.PlacementsOf(slices.Values(v.revisions))
	if !v.guided {
		for hash := range out.ByRevision {
			out.ByRevision[hash] = present
		}
	}
	return out
}

// previous is the revision before the present one; "" if there is none.
func (v *View) previous() string {
	hash, number := "", int64(-1)
	for h, n := range v.Numbers {
		if h != v.Revision && n > number {
			hash, number = h, n
		}
	}
	return hash
}

// rollout is what the matrix is told of policy and rollout.
func (v *View) rollout() (matrix.RolloutInfo, error) {
	var err error
	if v.Steady, err = steady(v.survey.Locate); err != nil {
		return matrix.RolloutInfo{}, err
	}
	info := matrix.RolloutInfo{
		UID: v.DaemonSet.UID, Policy: v.Steady, Following: course.Followed,
		Status: &v1alpha1.DaemonSetRolloutStatus{StableRevision: v.previous(), TargetRevision: v.Revision},
	}
	v.Policy = v.survey.Policy(v.DaemonSet)
	if belongings.StrategyOf(v.DaemonSet).OnDelete {
		v.Policy = nil // it is not asked
	}
	switch {
	case v.Policy != nil:
		if v.Rules, err = rolloutpolicy.Compile(&v.Policy.Spec, v.survey.Locate); err != nil {
			v.Broken = err.Error()
			info.Following, info.Why = course.Lost, "policy "+v.Policy.Name+" cannot be followed: "+v.Broken
			break
		}
		info.Policy, info.PolicyUID = v.Rules, v.Policy.UID
	case v.isHeld():
		info.Following, info.Why = course.Gone, v.Rollout.Status.Message
	default:
		return info, nil
	}
	info.Status, v.guided = &v1alpha1.DaemonSetRolloutStatus{}, true
	if v.Rollout != nil {
		info.Spec, info.Status, info.Generation = v.Rollout.Spec, &v.Rollout.Status, v.Rollout.Generation
	}
	return info, nil
}

// isHeld reports whether a rollout without a policy holds the change where it is: somebody paused it, or
// the policy went in the middle. One that is left of another DaemonSet of the name holds nothing.
func (v *View) isHeld() bool {
	r := v.Rollout
	if r == nil || r.Labels[rollouts.OwnerLabel] != "" && r.Labels[rollouts.OwnerLabel] != string(v.DaemonSet.UID) {
		return false
	}
	s := &r.Status
	return s.Phase == v1alpha1.PhasePaused || s.StableRevision != "" && s.TargetRevision != s.StableRevision
}

// because is why the matrix does not do more for a node.
func (v *View) because(name string) matrix.Because {
	if v.cells == nil {
		v.cells = map[string]matrix.CellSnapshot{}
		for _, row := range v.matrix.Dump().Rows {
			for _, c := range row.Cells {
				v.cells[c.Node] = c
			}
		}
	}
	return v.cells[name].Because
}

// Selects tells whether the present template wants a daemon on a node.
func (v *View) Selects(name string) bool {
	return v.matrix.Selects(v.DaemonSet.UID, v.Revision, name)
}

// template is the pod template of a revision, the present one if it cannot be read.
func (v *View) template(hash string) *corev1.PodTemplateSpec {
	for _, r := range v.revisions {
		if history.HashOf(r) != hash || hash == v.Revision {
			continue
		}
		if t, err := history.Template(r); err == nil {
			return t
		}
	}
	return &v.DaemonSet.Spec.Template
}

// Verdict is where a node stands.
func (v *View) Verdict(name string) course.Verdict {
	verdict, _, _ := v.matrix.Verdict(v.DaemonSet.UID, name)
	return verdict
}

// Step is the name of the node's step; "" without a policy, or for a node that has none.
func (v *View) Step(name string) string {
	if v.Rules == nil {
		return ""
	}
	return v.matrix.StepOf(v.DaemonSet.UID, name)
}

// Pods are the DaemonSet's pods on the node, the newest last.
func (v *View) Pods(name string) []*corev1.Pod {
	return byAge(v.survey.byOwner[v.DaemonSet.UID][name])
}

// since is from when on the verdict holds, as far as that shows; else the zero time.
func (v *View) since(name string, verdict course.Verdict, newest *corev1.Pod) time.Time {
	n := v.survey.nodes[name]
	switch {
	case verdict == course.NodeFault && n != nil:
		_, _, at := node.Fault(n)
		return at
	case newest == nil:
		return time.Time{}
	}
	return podSince(verdict, newest)
}

// Surges tells whether a DaemonSet starts the new pod of a node beside the old one.
func Surges(ds *appsv1.DaemonSet) bool {
	st := belongings.StrategyOf(ds)
	return !st.OnDelete && st.MaxSurge != intstr.FromInt32(0) && st.MaxSurge != intstr.FromString("0%") && st.MaxSurge != intstr.FromString("")
}

// Limit is how many nodes a DaemonSet's own strategy changes at a time.
func Limit(ds *appsv1.DaemonSet) rolloutpolicy.Limit {
	st := belongings.StrategyOf(ds)
	if Surges(ds) {
		return rolloutpolicy.LimitOf(st.MaxSurge)
	}
	return rolloutpolicy.LimitOf(st.MaxUnavailable)
}
