package matrix_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// rules are a policy, told so that a judge needs none of the product's code.
type rules struct {
	canary string // "": none; "label": the nodes with the label; a number: so many
	zones  bool
	most   int // at a time in each zone; 0: what the DaemonSet allows
	rack   int // at a time in each rack; 0: no limit
	min    int
	max    string
	faults string
	then   v1alpha1.FailureAction
	pace   int
	manual bool
}

func drawRules(t *rapid.T) rules {
	r := rules{
		canary: rapid.SampledFrom([]string{"", "label", "label", "2"}).Draw(t, "canary"), zones: rapid.Bool().Draw(t, "zones"),
		rack: rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "rack"), min: rapid.IntRange(1, 3).Draw(t, "min"),
		max: rapid.SampledFrom([]string{"5%", "50%", "100%"}).Draw(t, "max"), faults: rapid.SampledFrom([]string{"20%", "100%"}).Draw(t, "faults"),
		then: rapid.SampledFrom([]v1alpha1.FailureAction{v1alpha1.FailureHalt, v1alpha1.FailureRollback, v1alpha1.FailureRollback}).Draw(t, "then"),
		pace: rapid.SampledFrom([]int{0, 0, 60}).Draw(t, "pace"), manual: rapid.Bool().Draw(t, "manual"),
	}
	if r.zones {
		r.most = rapid.IntRange(0, 3).Draw(t, "most")
	}
	return r
}

// policy compiles the rules.
func (r rules) policy(t judgement) *rolloutpolicy.Policy {
	var waves []string
	approval := ""
	if r.manual {
		approval = ", approval: Manual"
	}
	switch r.canary {
	case "":
	case "label":
		waves = append(waves, "{name: canary, nodes: {matchLabels: {fleet: canary}}, soak: 5s"+approval+"}")
	default:
		waves = append(waves, "{name: canary, count: "+r.canary+", soak: 5s"+approval+"}")
	}
	switch {
	case r.zones && r.most > 0:
		waves = append(waves, fmt.Sprintf("{name: zones, each: zone, maxUnavailable: %d}", r.most))
	case r.zones:
		waves = append(waves, "{name: zones, each: zone, soak: 2s}")
	}
	text := "failure: {max: " + r.max + fmt.Sprintf(", min: %d, startDeadline: 30s, restarts: 3, then: %s}\n", r.min, r.then)
	text += "nodeFaults: {max: " + r.faults + "}\n"
	if len(waves) > 0 {
		text += "waves: [" + strings.Join(waves, ", ") + "]\n"
	}
	if r.rack > 0 {
		text += fmt.Sprintf("domains: [{key: rack, maxUnavailable: %d}]\n", r.rack)
	}
	if r.pace > 0 {
		text += fmt.Sprintf("pace: {nodesPerMinute: %d}\n", r.pace)
	}
	var spec v1alpha1.RolloutPolicySpec
	if err := yaml.UnmarshalStrict([]byte(text), &spec); err != nil {
		t.Fatal(text, err)
	}
	p, err := rolloutpolicy.Compile(&spec, time.LoadLocation)
	if err != nil {
		t.Fatal(text, err)
	}
	return p
}

// stepOf is the step of a node, false where the rules choose nodes by their number.
func (r rules) stepOf(labels map[string]string) (string, bool) {
	switch {
	case r.canary == "label" && labels["fleet"] == "canary":
		return "canary", true
	case r.canary != "" && r.canary != "label":
		return "", false
	case r.zones:
		return "zones/" + labels["zone"], true
	}
	return "rest", true
}

// place is one DaemonSet on one node.
type place struct {
	set  types.UID
	node string
}

// judgement is where a referee says what is wrong: a test, or a case of a property.
type judgement interface {
	Fatal(...any)
	Fatalf(string, ...any)
	Logf(string, ...any)
}

// referee judges what a controller decides by what it decided before, by the pods that there are, and
// by what it wrote. It counts everything from nothing.
type referee struct {
	t     judgement
	f     *fleet
	rules map[types.UID]rules
	// taken are the places that lost a working daemon to the controller, and have none since. A turn
	// back begins without.
	taken map[place]bool
	had   map[place]bool // a working daemon, once
	ways  map[types.UID]way
	// failed are the revisions that failed, as it is stored, with how often they were tried again;
	// asked are those that somebody wants tried again.
	failed map[types.UID]map[string]int32
	asked  map[types.UID]map[string]int32
	turns  map[types.UID]int
}

func newReferee(t judgement, f *fleet) *referee {
	r := &referee{
		t: t, f: f, rules: map[types.UID]rules{}, taken: map[place]bool{}, had: map[place]bool{}, ways: map[types.UID]way{},
		failed: map[types.UID]map[string]int32{}, asked: map[types.UID]map[string]int32{}, turns: map[types.UID]int{},
	}
	f.watch = r
	return r
}

// moment takes in what is so now.
func (r *referee) moment() {
	for _, uid := range slices.Sorted(maps.Keys(r.f.sets)) {
		r.follow(uid)
		for name := range r.f.nodes {
			if here := r.f.available(uid, name); len(here) > 0 {
				at := place{uid, name}
				r.had[at] = true
				if r.f.sent[here[0].UID] == 0 {
					delete(r.taken, at)
				}
			}
		}
	}
	maps.DeleteFunc(r.taken, func(at place, _ bool) bool { return r.f.nodes[at.node] == nil })
}

// follow takes in where a rollout goes, and what it says has failed.
func (r *referee) follow(uid types.UID) {
	set := r.f.sets[uid]
	if !set.follows() {
		delete(r.failed, uid)
		delete(r.asked, uid)
		delete(r.ways, uid)
		return
	}
	if st, decides := r.f.m.Rollout(uid); decides {
		if now := wayOf(&st); now != r.ways[uid] {
			r.ways[uid] = now
			if now.back {
				r.forget(uid)
			}
		}
	}
	if st := set.rollout.Status; st != nil {
		if r.failed[uid] == nil {
			r.failed[uid], r.asked[uid] = map[string]int32{}, map[string]int32{}
		}
		for _, f := range st.FailedRevisions {
			r.failed[uid][f.Revision] = f.Retries
			if r.asked[uid][f.Revision] <= f.Retries {
				delete(r.asked[uid], f.Revision)
			}
		}
		if st.StableRevision == st.TargetRevision {
			delete(r.failed[uid], st.StableRevision) // it works after all
		}
	}
	if try := set.rollout.Spec.Retry; try != nil && r.failed[uid] != nil {
		if retries, has := r.failed[uid][try.Revision]; has && try.Count > retries {
			r.asked[uid][try.Revision] = try.Count
		}
	}
}

// forget begins to count from nothing.
func (r *referee) forget(uid types.UID) {
	maps.DeleteFunc(r.taken, func(at place, _ bool) bool { return at.set == uid })
}

// decided judges what the controller is about to do.
func (r *referee) decided(actions []action.Action) {
	r.moment()
	for _, a := range r.bySteps(actions) {
		set := r.f.sets[a.Row()]
		switch a := a.(type) {
		case *action.CreatePod:
			r.given(set, a)
		case *action.DeletePod:
			r.took(set, a)
		case *action.PointPod:
			if r.f.pointing[a.PodUID] == r.f.process {
				r.fatal(set, "%s: there is no answer yet to the one before", a)
			}
			r.given(set, &action.CreatePod{Target: a.Target, Node: a.Node, Revision: a.Revision, Reason: a.Why()})
			r.took(set, &action.DeletePod{Target: a.Target, Node: a.Node, PodUID: a.PodUID, Reason: a.Why()})
		}
	}
}

// bySteps has what is done at one time on canaries come first: steps begin in their order, and a later one with a limit
// of its own does not ask how many others there are.
func (r *referee) bySteps(actions []action.Action) []action.Action {
	later := func(a action.Action) int {
		node := ""
		switch a := a.(type) {
		case *action.DeletePod:
			node = a.Node
		case *action.PointPod:
			node = a.Node
		default:
			return 0
		}
		if n := r.f.nodes[node]; n != nil {
			if step, known := r.rules[a.Row()].stepOf(n.info.Labels); known && step != "canary" {
				return 1
			}
		}
		return 0
	}
	return slices.SortedStableFunc(slices.Values(actions), func(a, b action.Action) int { return later(a) - later(b) })
}

// given judges a pod that is to be made: no revision that failed goes out unasked.
func (r *referee) given(set *daemons, a *action.CreatePod) {
	if !set.follows() {
		return
	}
	if _, failed := r.failed[a.UID][a.Revision]; failed && r.asked[a.UID][a.Revision] == 0 {
		r.fatal(set, "%s: that revision failed, and nobody asked for it", a)
	}
	st, _ := r.f.m.Rollout(a.UID)
	if w := wayOf(&st); w.stable != "" && !w.back && a.Revision == w.target && !r.begun(set, a.Node, &st) {
		r.fatal(set, "%s: its step has not begun", a)
	}
}

// begun reports whether the node's step has, as far as that can be told.
func (r *referee) begun(set *daemons, node string, st *v1alpha1.DaemonSetRolloutStatus) bool {
	step, known := r.rules[set.info.UID].stepOf(r.f.nodes[node].info.Labels)
	if !known {
		return true
	}
	has := slices.ContainsFunc(r.f.on(set.info.UID, node), func(p fact.Pod) bool { return p.Revision == st.TargetRevision })
	for i := range st.Steps {
		if st.Steps[i].Name == step {
			return true
		}
		if st.Steps[i].Name == st.Step {
			break
		}
	}
	return has
}

// took judges a pod that is to go. One beside another that works, or that does not work, takes nothing away.
func (r *referee) took(set *daemons, a *action.DeletePod) {
	here := r.f.available(a.UID, a.Node)
	if r.f.nodes[a.Node] == nil || len(here) != 1 || here[0].UID != a.PodUID {
		return
	}
	at := place{a.UID, a.Node}
	if r.f.sent[a.PodUID] > 0 && r.taken[at] {
		return // it was let go before
	}
	r.taken[at] = true
	r.turns[a.UID]++
	r.limits(set, a)
	if !set.follows() {
		return
	}
	if f := set.rollout.Following; f != course.Followed || set.rollout.Spec.Paused {
		r.fatal(set, "%s although nothing may begin", a)
	}
	st, _ := r.f.m.Rollout(a.UID)
	w := wayOf(&st)
	if !set.readable(w.destination()) && (w.back || r.begun(set, a.Node, &st) || !set.readable(w.stable)) {
		r.fatal(set, "%s: it is to have revision %s, which nobody can read", a, w.destination())
	}
	r.domains(set, a)
}

// limits counts the nodes that have no working daemon because the controller took it.
func (r *referee) limits(set *daemons, a *action.DeletePod) {
	uid, law := a.UID, r.rules[a.UID]
	all := max(budget(set, len(r.f.nodes)), 1)
	step, known := law.stepOf(r.f.nodes[a.Node].info.Labels)
	lost, beside := []string{}, 0
	for at := range r.taken {
		node := r.f.nodes[at.node]
		if at.set != uid || node == nil || node.dead() && at.node != a.Node {
			continue
		}
		lost = append(lost, at.node)
		if other, _ := law.stepOf(node.info.Labels); other == step {
			beside++
		}
	}
	if len(lost) <= all {
		return
	}
	// A step with a limit of its own asks for nothing else.
	if own := law.most; set.follows() && !r.ways[uid].back && own > 0 && (!known || strings.HasPrefix(step, "zones/")) && (!known || beside <= own) {
		return
	}
	slices.Sort(lost)
	r.fatal(set, "%s: %d nodes without a working daemon are its doing: %v; %d may be", a, len(lost), lost, all)
}

func budget(set *daemons, nodes int) int {
	if s := set.info.Strategy; s.MaxSurge.IntValue() > 0 {
		return s.MaxSurge.IntValue()
	}
	return min(set.info.Strategy.MaxUnavailable.IntValue(), nodes)
}

// domains counts the nodes of the rack that have no working daemon, whoever's fault it is.
func (r *referee) domains(set *daemons, a *action.DeletePod) {
	law := r.rules[a.UID]
	if law.rack == 0 {
		return
	}
	rack, down := r.f.nodes[a.Node].info.Labels["rack"], []string{a.Node}
	for _, name := range r.f.names() {
		m := r.f.nodes[name]
		if name == a.Node || m.info.Labels["rack"] != rack {
			continue
		}
		at := place{a.UID, name}
		if r.taken[at] || r.had[at] && len(r.f.available(a.UID, name)) == 0 {
			down = append(down, name)
		}
	}
	if len(down) > law.rack {
		r.fatal(set, "%s: then %v of rack %s have no working daemon, and %d may not", a, down, rack, law.rack)
	}
}

func (r *referee) fatal(set *daemons, format string, args ...any) {
	for _, name := range r.f.names() {
		verdict, why, _ := r.f.m.Verdict(set.info.UID, name)
		var pods []string
		for _, p := range r.f.on(set.info.UID, name) {
			pods = append(pods, fmt.Sprintf("%s ready=%v terminating=%v %s", p.Revision, p.Ready, p.Terminating, p.Trouble))
		}
		m := r.f.nodes[name]
		r.t.Logf("%s %v %q taken=%v: %q %s: %s", name, m.info.Labels, m.fault.Fault, r.taken[place{set.info.UID, name}], pods, verdict, why)
	}
	st, _ := r.f.m.Rollout(set.info.UID)
	r.t.Logf("bad %v hidden %v rules %+v", set.bad, set.hidden, r.rules[set.info.UID])
	r.t.Logf("rollout %s (%s): stable %s, target %s, step %s, failed %v", st.Phase, st.Message, st.StableRevision, st.TargetRevision, st.Step,
		st.FailedRevisions)
	r.t.Fatalf("after %s: "+format, append([]any{r.f.now.Sub(fleetStart)}, args...)...)
}
