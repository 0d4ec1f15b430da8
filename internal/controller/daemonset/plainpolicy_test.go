package daemonset

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/contents"
	"github.com/everynode/everynode/internal/controller/daemonset/fetches"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
	"github.com/everynode/everynode/internal/controller/daemonset/pins"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/controller/daemonset/startups"
	"github.com/everynode/everynode/internal/controller/daemonset/variants"
)

// plainPolicies have neither content nor images, fetch or ramp.
var plainPolicies = []string{
	`{waves: [{name: canary, nodes: {matchLabels: {fleet: canary}}, soak: 1m}, {name: next, count: 2, maxUnavailable: 2}], failure: {max: 0, min: 1, then: Rollback}}`,
	`{waves: [{name: canary, count: 2, soak: 30s}], failure: {max: 1, min: 2, then: Halt}}`,
	`{waves: [{name: canary, count: 1, approval: Manual}], failure: {max: 0, min: 1, then: Rollback}}`,
}

// tower is a matrix, alone or below the books that stand between it and the API.
type tower struct {
	*matrix.Matrix
	contents *contents.Book
	pins     *pins.Book
	variants *variants.Book
	fetches  *fetches.Book
}

func newTower(whole bool) *tower {
	t := &tower{Matrix: matrix.New(row.Config{Fetches: true, StatusInterval: time.Second})}
	if whole {
		t.variants = variants.New(startups.New(t.Matrix))
		t.fetches = fetches.New(t.variants, "example.com/everynode:v1")
		t.pins = pins.New(t.fetches)
		t.contents = contents.New(t.pins)
		t.contents.Live, t.pins.Objects, t.variants.Objects, t.fetches.Objects = true, nothing{}, nothing{}, nothing{}
	}
	return t
}

func (t *tower) tell(e matrix.Event) {
	if t.contents == nil {
		t.Step(e)
		return
	}
	if now, is := e.(fact.Now); is {
		t.Step(e)
		t.contents.Tell(contents.Now{Time: now.Time})
		t.pins.Tick(now.Time)
		t.variants.Tick(now.Time)
		t.fetches.Tick(now.Time)
		return
	}
	t.contents.Step(e)
}

// plainFleet plays the same for a matrix alone and one below its books.
type plainFleet struct {
	dice       *rand.Rand
	now        time.Time
	both       [2]*tower
	pods       map[types.UID]*fact.Pod
	made       int
	generation int64
	asked      v1alpha1.DaemonSetRolloutSpec
	policy     *rolloutpolicy.Policy
	stored     *v1alpha1.DaemonSetRolloutStatus
	reported   fact.Status
	conditions fact.Conditions
	actions    int
}

func (f *plainFleet) tell(e matrix.Event) {
	for _, t := range f.both {
		t.tell(e)
	}
}

func (f *plainFleet) start() {
	f.both = [2]*tower{newTower(false), newTower(true)}
	f.tell(fact.Now{Time: f.now})
	for i := range 6 {
		f.tell(fact.Node{Name: fmt.Sprint("n", i), Labels: map[string]string{"fleet": []string{"canary", "rest"}[min(i, 1)]}})
	}
	for _, uid := range slices.Sorted(maps.Keys(f.pods)) {
		f.tell(*f.pods[uid])
	}
	f.tell(fact.Rollout{UID: "ds", PolicyUID: "p", Policy: f.policy, Spec: f.asked, Status: f.stored})
	f.set()
}

func (f *plainFleet) set() {
	rules, earlier := placement.Compile(&corev1.PodSpec{}), map[string]*placement.Rules{}
	for g := range f.generation {
		earlier[fmt.Sprint("t", g+1)] = rules
	}
	f.tell(fact.DaemonSet{
		UID: "ds", Namespace: "ns", Name: "agent", Generation: f.generation, Revision: fmt.Sprint("t", f.generation),
		Reported: f.reported, Conditions: f.conditions, Strategy: fact.Strategy{MaxUnavailable: intstr.FromInt32(2)},
		Placement: rules, Earlier: &placement.Revisions{ByRevision: earlier},
	})
}

// settle has both say what is to be done until there is nothing, and returns in what they differ.
func (f *plainFleet) settle() string {
	for range 100 {
		alone, below := f.both[0].Ready(), f.both[1].Ready()
		for i := range max(len(alone), len(below)) {
			if i >= len(alone) || i >= len(below) || written(alone[i]) != written(below[i]) {
				return fmt.Sprintf("alone it does %v, below the books %v", alone, below)
			}
		}
		if len(alone) == 0 {
			return ""
		}
		for i := range alone {
			f.do(alone[i], below[i])
		}
	}
	return "it never ends"
}

func written(a action.Action) string {
	text, err := json.Marshal(a)
	return fmt.Sprintf("%T %s %v", a, text, err)
}

// nothing is an API without objects: nobody asks for any where no policy says so.
type nothing struct{}

func (nothing) Pod(types.UID) *corev1.Pod                          { return nil }
func (nothing) Template(types.UID, string) *corev1.PodTemplateSpec { return nil }
func (nothing) Retell(types.UID)                                   {}
func (nothing) Spec(types.UID, string, string) (*corev1.PodSpec, error) {
	return nil, errors.New("no pod fetches")
}

func (f *plainFleet) do(a, same action.Action) {
	f.actions++
	answer := func(uid types.UID) {
		for i, to := range []action.Action{a, same} {
			f.both[i].tell(action.Answer{Action: to, Outcome: action.OK, Pod: uid})
		}
	}
	switch a := a.(type) {
	case *action.CreatePod:
		f.made++
		p := &fact.Pod{UID: types.UID(fmt.Sprint("pod", f.made)), Name: a.PodName, Owner: "ds", Node: a.Node, Bound: true, Revision: a.Revision,
			Created: f.now, BoundAt: f.now, Before: a.Before}
		f.pods[p.UID] = p
		f.tell(*p)
		answer(p.UID)
	case *action.DeletePod:
		delete(f.pods, a.PodUID)
		answer("")
		f.tell(fact.PodGone(a.PodUID))
	case *action.UpdateRollout:
		f.stored = a.Status.DeepCopy()
		answer("")
	case *action.UpdateStatus:
		f.reported, f.conditions = a.Status, a.Conditions
		f.set()
		answer("")
	default:
		answer("")
	}
}

// play returns what both do otherwise, after how many steps; "" for nothing.
func (f *plainFleet) play() string {
	f.start()
	for step := range 60 {
		var any *fact.Pod
		for _, uid := range slices.Sorted(maps.Keys(f.pods)) {
			if any == nil || f.dice.IntN(3) == 0 {
				any = f.pods[uid]
			}
		}
		switch op := f.dice.IntN(10); {
		case op == 0:
			f.generation++
			f.set()
		case op == 1:
			f.start()
		case op == 2:
			f.asked.Paused = !f.asked.Paused && f.dice.IntN(3) == 0
			f.tell(fact.Rollout{UID: "ds", PolicyUID: "p", Policy: f.policy, Spec: f.asked})
		case op == 3 && f.stored != nil:
			f.asked.Approved = &v1alpha1.StepApproval{Revision: f.stored.TargetRevision, Digest: f.stored.TargetDigest, Step: v1alpha1.AllSteps}
			f.tell(fact.Rollout{UID: "ds", PolicyUID: "p", Policy: f.policy, Spec: f.asked})
		case op == 4 && any != nil && f.dice.IntN(3) == 0:
			any.Ready, any.Trouble, any.Certain = false, "it crashes", true
			f.tell(*any)
		case op == 5 && any != nil:
			delete(f.pods, any.UID)
			f.tell(fact.PodGone(any.UID))
		case op < 8:
			for _, uid := range slices.Sorted(maps.Keys(f.pods)) {
				if p := f.pods[uid]; !p.Ready && p.Trouble == "" {
					p.Ready, p.ReadySince = true, f.now
					f.tell(*p)
				}
			}
		default:
			f.now = f.now.Add(time.Duration(1+f.dice.IntN(40)) * time.Second)
			f.tell(fact.Now{Time: f.now})
		}
		if differ := f.settle(); differ != "" {
			return fmt.Sprintf("step %d: %s", step, differ)
		}
	}
	return ""
}

// A policy without content, images, fetch and ramp has the same done, to the byte, whether the controller knows of
// these or not: what stands between the API and the matrix adds nothing and holds up nothing.
func TestPlainPolicyIsAsWithoutTheBooks(t *testing.T) {
	actions := 0
	for seed := range uint64(200) {
		spec := &v1alpha1.RolloutPolicySpec{}
		if err := yaml.UnmarshalStrict([]byte(plainPolicies[seed%3]), spec); err != nil {
			t.Fatal(err)
		}
		policy, err := rolloutpolicy.Compile(spec, time.LoadLocation)
		if err != nil {
			t.Fatal(err)
		}
		f := &plainFleet{dice: rand.New(rand.NewPCG(seed, 1)), now: noon, pods: map[types.UID]*fact.Pod{}, generation: 1, policy: policy}
		if differ := f.play(); differ != "" {
			t.Errorf("seed %d: %s", seed, differ)
		}
		actions += f.actions
	}
	if actions < 10000 {
		t.Errorf("only %d actions were compared", actions)
	}
}
