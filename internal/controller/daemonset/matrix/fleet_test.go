package matrix_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

// Times of a fleet.
const (
	roundTrip = 10 * time.Millisecond
	startTime = 2 * time.Second
	stopTime  = time.Second
)

var fleetStart = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// ailment is what keeps a revision from working on a node.
type ailment string

const (
	crashes ailment = "crashes"
	noImage ailment = "no image"
	stalls  ailment = "stalls"
	// refused is a pod that the API takes no more.
	refused ailment = "refused"
	// deaf is an agent that never says what a running pod shows. One that is made new works.
	deaf ailment = "deaf"
)

// machine is a node of a fleet. One that is dead runs nothing, and ends nothing.
type machine struct {
	info  fact.Node
	fault fact.Health
}

func (m *machine) dead() bool { return m.fault.Silent }

// daemons is a DaemonSet of a fleet, with what the API holds of its rollout.
type daemons struct {
	info    fact.DaemonSet
	rollout *fact.Rollout // nil while no policy selects it
	left    bool          // it follows nothing, whatever there is to follow
	// hidden are the revisions whose ControllerRevision is gone.
	known, hidden map[string]bool
	bad           map[string]map[string]ailment // by revision and node
	retries       int32
}

// fleet is an API, its nodes and a controller. It knows the controller by what it is told and what it
// asks for alone, and takes its time for everything.
type fleet struct {
	m       *matrix.Matrix
	process int // which one runs
	now     time.Time
	agenda  []appointment
	dice    *rand.Rand
	// flaky says how many of a hundred requests fail, or get no answer.
	flaky int
	nodes map[string]*machine
	sets  map[types.UID]*daemons
	pods  map[types.UID]fact.Pod
	made  int
	// sent are the deletions that are on their way; pointing is which process waits for an answer about a pod.
	sent     map[types.UID]int
	pointing map[types.UID]int
	// watch is told of all that was decided, and of each moment.
	watch watcher
}

type watcher interface {
	decided([]action.Action)
	moment()
}

type appointment struct {
	at time.Time
	do func()
}

func newFleet(seed uint64) *fleet {
	f := &fleet{
		now: fleetStart, dice: rand.New(rand.NewPCG(seed, 0)), nodes: map[string]*machine{}, sets: map[types.UID]*daemons{},
		pods: map[types.UID]fact.Pod{}, sent: map[types.UID]int{}, pointing: map[types.UID]int{},
	}
	f.restart()
	return f
}

// restart ends the controller and starts another one, which knows what the API holds. What the first
// one asked for may still be done.
func (f *fleet) restart() {
	f.process++
	f.m = matrix.New(row.Config{})
	f.m.Step(fact.Now{Time: f.now})
	for _, name := range f.names() {
		f.m.Step(f.nodes[name].info)
		f.m.Step(f.nodes[name].fault)
	}
	for _, uid := range slices.Sorted(maps.Keys(f.sets)) {
		f.guide(f.sets[uid])
		f.m.Step(f.sets[uid].info)
	}
	for _, uid := range slices.Sorted(maps.Keys(f.pods)) {
		f.m.Step(f.pods[uid])
	}
}

func (f *fleet) names() []string { return slices.Sorted(maps.Keys(f.nodes)) }

func (f *fleet) after(d time.Duration, do func()) {
	at := f.now.Add(d)
	i := len(f.agenda)
	for i > 0 && f.agenda[i-1].at.After(at) {
		i--
	}
	f.agenda = slices.Insert(f.agenda, i, appointment{at, do})
}

// pass lets time go by.
func (f *fleet) pass(d time.Duration) {
	for end := f.now.Add(d); ; {
		actions := f.m.Ready()
		f.watch.decided(actions)
		for _, a := range actions {
			f.act(a)
		}
		at, timed := f.m.NextTick()
		if len(f.agenda) > 0 && (!timed || f.agenda[0].at.Before(at)) {
			at, timed = f.agenda[0].at, true
		}
		if !timed || at.After(end) {
			f.now = end
			f.m.Step(fact.Now{Time: f.now})
			return
		}
		if at.After(f.now) {
			f.now = at
		}
		f.m.Step(fact.Now{Time: f.now})
		for len(f.agenda) > 0 && !f.agenda[0].at.After(f.now) {
			a := f.agenda[0]
			f.agenda = f.agenda[1:]
			a.do()
		}
		f.watch.moment()
	}
}

// act sends an action to the API. Its answer is for the process that asked.
func (f *fleet) act(a action.Action) {
	process, does, outcome := f.process, true, action.OK
	if f.dice.IntN(100) < f.flaky {
		switch f.dice.IntN(3) {
		case 0:
			does, outcome = false, action.Failed
		case 1:
			does, outcome = false, action.Unknown
		default:
			outcome = action.Unknown
		}
	}
	takes := takenBy(a)
	if takes != "" {
		f.sent[takes]++
	}
	if p, is := a.(*action.PointPod); is {
		f.pointing[p.PodUID] = process
	}
	f.after(roundTrip, func() {
		answer := action.Answer{Action: a, Outcome: outcome}
		if takes != "" {
			f.sent[takes]--
		}
		if f.process != process && f.dice.IntN(2) == 0 {
			does = false // it died before it was sent
		}
		if does {
			f.do(a, &answer)
		}
		if f.pointing[takes] == process {
			delete(f.pointing, takes)
		}
		if _, news := a.(*action.RolloutNews); f.process == process && !news {
			f.m.Step(answer)
		}
	})
}

// takenBy is the pod that an action takes from its node, for a while or for good.
func takenBy(a action.Action) types.UID {
	switch a := a.(type) {
	case *action.DeletePod:
		return a.PodUID
	case *action.PointPod:
		return a.PodUID
	}
	return ""
}

// do has the API do what was asked.
func (f *fleet) do(a action.Action, answer *action.Answer) {
	set := f.sets[a.Row()]
	switch a := a.(type) {
	case *action.CreatePod:
		f.create(a, answer)
	case *action.DeletePod:
		f.remove(a.PodUID)
	case *action.PointPod:
		f.point(a, answer)
	case *action.UpdateStatus:
		set.info.Reported, set.info.Conditions = a.Status, a.Conditions
		f.m.Step(set.info)
	case *action.UpdateRollout:
		if set.rollout != nil {
			status := a.Status
			set.rollout.Status = &status
			f.m.Step(*set.rollout)
		}
	}
}

func (f *fleet) create(a *action.CreatePod, answer *action.Answer) {
	if !f.sets[a.UID].readable(a.Revision) {
		answer.Outcome = action.Failed
		return
	}
	for _, p := range f.pods {
		if p.Name != a.PodName {
			continue
		}
		answer.Pod = p.UID
		if p.Revision != a.Revision && answer.Outcome == action.OK {
			answer.Outcome, answer.Pod = action.NameTaken, ""
		}
		return
	}
	if f.sets[a.UID].bad[a.Revision][a.Node] == refused {
		answer.Outcome, answer.Refused = action.Failed, "the API refuses the pod"
		return
	}
	f.made++
	p := fact.Pod{
		UID: types.UID(fmt.Sprintf("pod-%06d", f.made)), Name: a.PodName, Owner: a.UID, Node: a.Node,
		Revision: a.Revision, Before: a.Before, Created: f.now,
	}
	answer.Pod = p.UID
	f.set(p)
	f.after(200*time.Millisecond, func() {
		p, there := f.pods[p.UID]
		if !there {
			return
		}
		p.Bound, p.BoundAt = true, f.now
		f.set(p)
		f.begin(p.UID)
	})
}

// point has the API write which content a pod is to show, and its node follow.
func (f *fleet) point(a *action.PointPod, answer *action.Answer) {
	p, there := f.pods[a.PodUID]
	switch {
	case !there:
		if answer.Outcome == action.OK {
			answer.Outcome = action.Gone
		}
	case p.Terminating:
	case f.sets[a.UID].bad[a.Revision][a.Node] == refused:
		answer.Outcome, answer.Refused = action.Failed, "the API refuses what the pod is pointed at"
	default:
		p.Revision, p.Before, p.Settle, p.Restarts = a.Revision, a.Before, a.Settle, 0
		p.Pointed, p.Mounted, p.Trouble = a.At, time.Time{}, "" // what the node said was of other content
		f.set(p)
		f.mount(p.UID, p.Pointed)
	}
}

// mount has a node give a running pod the content that it was pointed at then.
func (f *fleet) mount(uid types.UID, pointed time.Time) {
	f.after(roundTrip, func() {
		p, there := f.pods[uid]
		node := f.nodes[p.Node]
		if !there || node == nil || node.dead() || p.Terminating || !p.Pointed.Equal(pointed) || !p.Mounted.IsZero() {
			return
		}
		switch f.sets[p.Owner].bad[p.Revision][p.Node] {
		case "", refused:
			p.Mounted = f.now
		case crashes:
			p.Mounted = f.now
			p.Ready, p.ReadySince, p.Restarts, p.Trouble = false, time.Time{}, p.Restarts+9, "it crashes"
		case noImage:
			p.Trouble = "its volumes cannot show that"
		case stalls, deaf:
			return // the agent says nothing
		}
		f.set(p)
	})
}

// begin has a node start a pod.
func (f *fleet) begin(uid types.UID) {
	f.after(startTime, func() {
		p, there := f.pods[uid]
		node := f.nodes[p.Node]
		if !there || node == nil || node.dead() || p.Terminating || p.Ready {
			return
		}
		switch f.sets[p.Owner].bad[p.Revision][p.Node] {
		case "", refused, deaf: // what is refused was made before
			p.Ready, p.ReadySince = true, f.now
		case crashes:
			p.Restarts, p.Trouble = p.Restarts+9, "it crashes"
		case noImage:
			p.Trouble, p.Certain = "its image cannot be pulled", true
		}
		f.set(p)
	})
}

// remove ends a pod: at once where nothing runs it, and never on a node that is dead.
func (f *fleet) remove(uid types.UID) {
	p, there := f.pods[uid]
	if !there || p.Terminating {
		return
	}
	p.Terminating, p.WasReady, p.EndsBy = true, p.Ready, f.now.Add(30*time.Second)
	f.set(p)
	f.end(uid)
}

func (f *fleet) end(uid types.UID) {
	f.after(stopTime, func() {
		p, there := f.pods[uid]
		if node := f.nodes[p.Node]; there && node != nil && node.dead() {
			return
		}
		f.drop(uid)
	})
}

func (f *fleet) drop(uid types.UID) {
	if _, there := f.pods[uid]; there {
		delete(f.pods, uid)
		f.m.Step(fact.PodGone(uid))
	}
}

func (f *fleet) set(p fact.Pod) {
	f.pods[p.UID] = p
	f.m.Step(p)
}

// join adds a node.
func (f *fleet) join(name string, labels map[string]string) {
	f.nodes[name] = &machine{info: fact.Node{Name: name, Labels: labels}, fault: fact.Health{Name: name}}
	f.m.Step(f.nodes[name].info)
}

// leave takes a node away, with its pods.
func (f *fleet) leave(name string) {
	delete(f.nodes, name)
	f.m.Step(fact.NodeGone(name))
	f.m.Step(fact.Health{Name: name})
	for _, uid := range slices.Sorted(maps.Keys(f.pods)) {
		if f.pods[uid].Node == name {
			f.drop(uid)
		}
	}
}

// health has a node die, fall ill, or come back.
func (f *fleet) health(name, fault string, silent bool) {
	m := f.nodes[name]
	m.fault = fact.Health{Name: name, Fault: fault, Silent: silent, Since: f.now}
	f.m.Step(m.fault)
	for _, p := range f.on("", name) {
		if p.Ready && fault != "" {
			p.Ready, p.ReadySince = false, time.Time{}
			f.set(p)
		}
		switch {
		case fault == "" && p.Terminating:
			f.end(p.UID)
		case fault == "" && p.Bound:
			f.begin(p.UID)
			if !p.Pointed.IsZero() {
				f.mount(p.UID, p.Pointed)
			}
		}
	}
}

// on lists the pods of a node, of one DaemonSet or of all.
func (f *fleet) on(set types.UID, node string) (out []fact.Pod) {
	for _, uid := range slices.Sorted(maps.Keys(f.pods)) {
		if p := f.pods[uid]; p.Node == node && (set == "" || p.Owner == set) {
			out = append(out, p)
		}
	}
	return out
}

// available lists those that work.
func (f *fleet) available(set types.UID, node string) []fact.Pod {
	return slices.DeleteFunc(f.on(set, node), func(p fact.Pod) bool {
		shows := p.Pointed.IsZero() || !p.Mounted.IsZero() && !p.Mounted.Add(p.Settle).After(f.now)
		return !p.Ready || p.Terminating || !shows
	})
}

// addSet makes a DaemonSet.
func (f *fleet) addSet(name, revision string, most intstr.IntOrString, surge bool) *daemons {
	s := &daemons{
		info: fact.DaemonSet{
			UID: types.UID(name), Namespace: "default", Name: name, Generation: 1, Revision: revision,
			Placement: placement.Compile(&corev1.PodSpec{}),
		},
		known: map[string]bool{revision: true}, hidden: map[string]bool{}, bad: map[string]map[string]ailment{},
	}
	s.proceed(most, surge)
	f.sets[s.info.UID] = s
	f.tell(s)
	return s
}

// proceed says how many nodes may change at a time, and whether the old pod stays meanwhile.
func (s *daemons) proceed(most intstr.IntOrString, surge bool) {
	s.info.Strategy = fact.Strategy{MaxUnavailable: most}
	if surge {
		s.info.Strategy = fact.Strategy{MaxSurge: most}
	}
}

// update gives a DaemonSet another template.
func (f *fleet) update(s *daemons, revision string) {
	s.info.Generation++
	s.info.Revision, s.known[revision] = revision, true
	delete(s.hidden, revision)
	f.tell(s)
}

// tell has the controller see a DaemonSet and the revisions that can be read.
func (f *fleet) tell(s *daemons) {
	s.info.Earlier = &placement.Revisions{ByRevision: map[string]*placement.Rules{}}
	for revision := range s.known {
		if !s.hidden[revision] {
			s.info.Earlier.ByRevision[revision] = s.info.Placement
		}
	}
	if s.left != s.info.Strategy.OnDelete {
		f.guide(s)
	}
	f.m.Step(s.info)
}

// follow changes what a DaemonSet follows.
func (f *fleet) follow(s *daemons, change func(*fact.Rollout)) {
	if s.rollout == nil {
		s.rollout = &fact.Rollout{UID: s.info.UID}
	}
	change(s.rollout)
	f.guide(s)
}

// follows reports whether its changes follow a policy.
func (s *daemons) follows() bool { return s.rollout != nil && !s.left }

// guide has the controller see what the DaemonSet follows: with OnDelete nothing.
func (f *fleet) guide(s *daemons) {
	s.left = s.info.Strategy.OnDelete
	switch {
	case s.left:
		f.m.Step(fact.RolloutGone(s.info.UID))
	case s.rollout != nil:
		f.m.Step(*s.rollout)
	}
}

// forsake takes the policy and the rollout away.
func (f *fleet) forsake(s *daemons) {
	s.rollout = nil
	f.m.Step(fact.RolloutGone(s.info.UID))
}

// afflict has a revision not work on some nodes.
func (s *daemons) afflict(revision string, with ailment, nodes ...string) {
	if s.bad[revision] == nil {
		s.bad[revision] = map[string]ailment{}
	}
	for _, n := range nodes {
		// What is there and does not work is not mended by these.
		if with != refused && with != deaf || s.bad[revision][n] == "" {
			s.bad[revision][n] = with
		}
	}
}

// readable reports whether the revision's rules are known.
func (s *daemons) readable(revision string) bool {
	return revision == s.info.Revision || content.IDOf(revision) != "" || s.known[revision] && !s.hidden[revision]
}

// way is where a rollout's nodes go.
type way struct {
	back           bool
	stable, target string
}

func wayOf(st *v1alpha1.DaemonSetRolloutStatus) way {
	w := way{stable: st.StableRevision, target: st.TargetRevision}
	w.back = w.stable == w.target || slices.ContainsFunc(st.FailedRevisions, func(f v1alpha1.FailedRevision) bool {
		return f.Revision == w.target && f.Action == v1alpha1.FailureRollback
	})
	return w
}

func (w way) destination() string {
	if w.back {
		return w.stable
	}
	return w.target
}
