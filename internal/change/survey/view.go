package survey

import (
	"math"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
	"github.com/everynode/everynode/internal/node"
)

// View is where one DaemonSet stands on each node.
type View struct {
	*Set
	// Rules is what the policy says that is followed, nil if none is. Status is where the rollout stands by what was
	// read now.
	Rules  *rolloutpolicy.Policy
	Status v1alpha1.DaemonSetRolloutStatus

	core *Core
	// cells, busy, apart and seen are made when they are first asked for.
	cells map[string]row.CellSnapshot
	busy  *string
	// apart are what a pod of the newest content names itself, and the empty name, if there is such a pod.
	apart map[content.Ref]bool
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
	set, err := s.Set(ds)
	if err != nil {
		return nil, err
	}
	// Nothing is begun by it, and no node is asked: it knows only of a controller that does.
	looking := row.Config{BurstReplicas: -1, Fetches: set.Rollout != nil && set.Rollout.Status.Fetches()}
	v := &View{Set: set, core: set.surroundings(looking)}
	row := set.info()
	if v.core.Follows != nil {
		v.Rules = v.core.Follows.Policy
	} else if err := v.stayWithPresent(&row); err != nil {
		return nil, err
	}
	set.begin(v.core, row)
	v.core.Ready() // what it would do is nobody's business here; it makes the rollout decide
	v.Status, _ = v.core.Rollout(ds.UID)
	return v, nil
}

// stayWithPresent has a row without a policy judged as if it had one. The placement rules of the present template hold
// for all nodes then.
func (v *View) stayWithPresent(row *fact.DaemonSet) error {
	policy, err := steady(v.survey.Locate)
	if err != nil {
		return err
	}
	for hash := range row.Earlier.ByRevision {
		row.Earlier.ByRevision[hash] = row.Placement
	}
	v.core.Matrix.Step(fact.Rollout{
		UID: row.UID, Policy: policy,
		Status: &v1alpha1.DaemonSetRolloutStatus{StableRevision: v.previous(), TargetRevision: v.Revision},
	})
	for _, n := range v.survey.Nodes {
		v.core.Step(v.health(n))
	}
	return nil
}

// health is whether a node is out of order. Without a policy changes begin on nodes in maintenance as on others.
func (v *View) health(n *corev1.Node) fact.Health {
	if v.core.Follows == nil {
		return fact.FaultOf(n)
	}
	return fact.HealthOf(n)
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

// because is why the matrix does not do more for a node.
func (v *View) because(name string) row.Because {
	if v.cells == nil {
		v.cells = map[string]row.CellSnapshot{}
		for _, row := range v.core.Dump().Rows {
			for _, c := range row.Cells {
				v.cells[c.Node] = c
			}
		}
	}
	return v.cells[name].Because
}

// Verdict is where a node stands.
func (v *View) Verdict(name string) standing.Verdict {
	verdict, _, _ := v.core.Verdict(v.DaemonSet.UID, name)
	return verdict
}

// Step is the name of the node's step; "" without a policy, or for a node that has none.
func (v *View) Step(name string) string {
	if v.Rules == nil {
		return ""
	}
	return v.core.StepOf(v.DaemonSet.UID, name)
}

// since is from when on the verdict holds, as far as that shows; else the zero time.
func (v *View) since(name string, verdict standing.Verdict, newest *corev1.Pod) time.Time {
	n := v.survey.nodes[name]
	switch {
	case verdict == standing.InMaintenance && n != nil:
		if all := node.Maintenances(n); len(all) > 0 {
			return all[0].LastTransitionTime.Time
		}
	case verdict == standing.NodeFault && n != nil:
		_, _, at := node.Fault(n)
		return at
	case newest == nil:
		return time.Time{}
	}
	return podSince(verdict, newest)
}
