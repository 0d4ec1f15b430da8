package matrix

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// world is what a matrix is told about, kept in plain maps, together with the
// actions that are in flight. Scripts and random tests drive it.
type world struct {
	m    *Matrix
	cfg  row.Config
	now  time.Time
	sets map[types.UID]fact.DaemonSet
	// specs are the templates that the placements were compiled from.
	specs map[types.UID]corev1.PodSpec
	// templates are the specs of all revisions, by DaemonSet.
	templates map[types.UID]map[string]corev1.PodSpec
	nodes     map[string]fact.Node
	pods      map[types.UID]fact.Pod

	refused  string // what the API says to creations that fail, if it refuses them for good
	inFlight []action.Action
	// doomed and creating mirror, from the outside, what is in flight or not
	// yet seen: until when.
	doomed   map[types.UID]time.Time
	unsure   map[types.UID]time.Time // their deletion got no answer
	creating map[string]expected     // by cell
	// unanswered are the cells where a pod may have been created.
	unanswered map[string]expected
	left       map[string]types.UID // the pod that left a cell last
	alias      map[string]string    // generated pod name -> readable one
	made       int
	// late are actions that were answered before their event came.
	late  []action.Action
	uids  map[*action.CreatePod]types.UID
	marks map[types.UID]mark
	// told is why a node cannot take its pod, by cell; placed are the cells where
	// a pod was placed since.
	told   map[string]string
	placed map[string]bool
	// sawReady is when a pod was first seen ready.
	sawReady map[types.UID]time.Time
	// fell is when a pod that was available was last seen not to be.
	fell map[types.UID]time.Time
	// rollouts are those of the DaemonSets that follow a policy.
	rollouts map[types.UID]fact.Rollout
	// policies are those that the DaemonSets follow, or followed last.
	policies map[types.UID]*rolloutpolicy.Policy
	// written is what the API holds of a rollout's status, hurt when a creation failed last, by DaemonSet.
	written map[types.UID]v1alpha1.DaemonSetRolloutStatus
	hurt    map[types.UID]time.Time
}

type expected struct {
	pod      string
	until    time.Time
	answered bool
	uid      types.UID
	seen     bool
}

func newWorld(cfg row.Config) *world {
	w := &world{
		m: New(cfg), cfg: cfg.WithDefaults(), now: noon,
		sets: map[types.UID]fact.DaemonSet{}, specs: map[types.UID]corev1.PodSpec{}, templates: map[types.UID]map[string]corev1.PodSpec{},
		nodes: map[string]fact.Node{}, pods: map[types.UID]fact.Pod{},
		doomed: map[types.UID]time.Time{}, unsure: map[types.UID]time.Time{}, creating: map[string]expected{}, unanswered: map[string]expected{}, alias: map[string]string{},
		left: map[string]types.UID{}, uids: map[*action.CreatePod]types.UID{}, sawReady: map[types.UID]time.Time{}, fell: map[types.UID]time.Time{},
		rollouts: map[types.UID]fact.Rollout{}, policies: map[types.UID]*rolloutpolicy.Policy{},
		written: map[types.UID]v1alpha1.DaemonSetRolloutStatus{}, hurt: map[types.UID]time.Time{},
		marks: map[types.UID]mark{}, told: map[string]string{}, placed: map[string]bool{},
	}
	w.m.Step(fact.Now{Time: w.now})
	return w
}

func cellKey(owner types.UID, node string) string { return string(owner) + "/" + node }

func (w *world) setDaemonSet(info fact.DaemonSet, spec corev1.PodSpec) {
	info.Placement = placement.Compile(&spec)
	w.revision(info.UID, info.Revision, spec)
	info.Earlier = w.earlier(info.UID, info.Revision)
	if _, known := w.sets[info.UID]; !known {
		st := info.Reported
		w.marks[info.UID] = mark{st.ObservedGeneration, st.Desired, st.Updated, st.Available, w.now}
		if info.Conditions.Progressing.Status == corev1.ConditionFalse {
			w.marks[info.UID] = mark{generation: st.ObservedGeneration, desired: st.Desired, updated: st.Updated, available: st.Available}
		}
	}
	w.sets[info.UID], w.specs[info.UID] = info, spec
	w.m.Step(info)
}

// revision tells of a template, as a ControllerRevision does.
func (w *world) revision(uid types.UID, hash string, spec corev1.PodSpec) {
	if w.templates[uid] == nil {
		w.templates[uid] = map[string]corev1.PodSpec{}
	}
	w.templates[uid][hash] = spec
	if info, known := w.sets[uid]; known {
		info.Earlier = w.earlier(uid, info.Revision)
		w.sets[uid] = info
		w.m.Step(info)
	}
}

func (w *world) earlier(uid types.UID, newest string) *placement.Revisions {
	out := &placement.Revisions{ByRevision: map[string]*placement.Rules{}}
	for revision, spec := range w.templates[uid] {
		if revision != newest {
			out.ByRevision[revision] = placement.Compile(&spec)
		}
	}
	return out
}

func (w *world) dropDaemonSet(uid types.UID) {
	delete(w.sets, uid)
	delete(w.specs, uid)
	theirs := func(pod types.UID, _ time.Time) bool { return w.pods[pod].Owner == uid }
	maps.DeleteFunc(w.doomed, theirs)
	maps.DeleteFunc(w.unsure, theirs)
	maps.DeleteFunc(w.creating, func(cell string, _ expected) bool { return strings.HasPrefix(cell, string(uid)+"/") })
	maps.DeleteFunc(w.unanswered, func(cell string, _ expected) bool { return strings.HasPrefix(cell, string(uid)+"/") })
	w.m.Step(fact.DaemonSetGone(uid))
}

func (w *world) rolloutOf(uid types.UID) fact.Rollout {
	info := w.rollouts[uid]
	info.UID = uid
	return info
}

func (w *world) setRollout(info fact.Rollout) {
	w.rollouts[info.UID] = info
	if info.Policy != nil {
		w.policies[info.UID] = info.Policy
	}
	w.m.Step(info)
}
func (w *world) dropRollout(uid types.UID) {
	delete(w.rollouts, uid)
	delete(w.written, uid)
	w.m.Step(fact.RolloutGone(uid))
}
func (w *world) health(h fact.Health) { w.m.Step(h) }
func (w *world) setNode(n fact.Node)  { w.nodes[n.Name] = n; w.m.Step(n) }
func (w *world) dropNode(n string)    { delete(w.nodes, n); w.m.Step(fact.NodeGone(n)) }

func (w *world) setPod(p fact.Pod) {
	if old := w.pods[p.UID]; p.Ready && (!old.Ready || old.ReadySince != p.ReadySince) {
		w.sawReady[p.UID] = w.now
	} else if old.Ready && !p.Ready {
		w.fell[p.UID] = w.now
	}
	w.pods[p.UID] = p
	if p.Bound {
		w.placed[cellKey(p.Owner, p.Node)] = true
	}
	w.seeInCell(p)
	if p.Terminating {
		delete(w.doomed, p.UID)
		delete(w.unsure, p.UID)
	}
	w.m.Step(p)
}

// seeInCell: what was in doubt is known when the pod is seen.
func (w *world) seeInCell(p fact.Pod) {
	cell := cellKey(p.Owner, p.Node)
	if e, ok := w.creating[cell]; ok && e.answered && e.uid == p.UID {
		delete(w.creating, cell)
	} else if ok && e.pod == p.Name {
		e.seen = true
		w.creating[cell] = e
	}
	if w.unanswered[cell].pod == p.Name {
		delete(w.unanswered, cell)
	}
}

func (w *world) dropPod(uid types.UID) {
	if p, ok := w.pods[uid]; ok {
		w.left[cellKey(p.Owner, p.Node)] = uid
	}
	delete(w.pods, uid)
	delete(w.doomed, uid)
	delete(w.unsure, uid)
	w.m.Step(fact.PodGone(uid))
}

func (w *world) tick(d time.Duration) {
	w.now = w.now.Add(d)
	over := func(_ types.UID, until time.Time) bool { return !until.After(w.now) }
	maps.DeleteFunc(w.doomed, over)
	maps.DeleteFunc(w.unsure, over)
	maps.DeleteFunc(w.unanswered, func(_ string, e expected) bool { return !e.until.After(w.now) })
	maps.DeleteFunc(w.creating, func(cell string, e expected) bool {
		if e.answered && !e.until.After(w.now) {
			w.unanswered[cell] = expected{pod: e.pod, until: w.now.Add(w.cfg.ExpectationsTimeout)}
		}
		return !e.until.After(w.now)
	})
	w.m.Step(fact.Now{Time: w.now})
}

// ready takes the matrix's actions into flight.
func (w *world) ready() []action.Action {
	actions := w.m.Ready()
	w.look()
	until := w.now.Add(w.cfg.ExpectationsTimeout)
	for _, a := range actions {
		switch a := a.(type) {
		case *action.CreatePod:
			w.creating[cellKey(a.UID, a.Node)] = expected{pod: a.PodName, until: until}
			if w.alias[a.PodName] == "" {
				w.alias[a.PodName] = fmt.Sprintf("%s.%d", a.Node, w.countAlias(a.Node)+1)
			}
		case *action.DeletePod:
			w.doomed[a.PodUID] = until
		case *action.FailedPlacement:
			w.told[cellKey(a.UID, a.Node)] = a.Detail
			delete(w.placed, cellKey(a.UID, a.Node))
		}
	}
	w.inFlight = append(w.inFlight, actions...)
	return actions
}

// unplaceable is why the daemon's pod cannot be on the node, if it is wanted.
func (w *world) unplaceable(uid types.UID, node string) string {
	if _, exists := w.nodes[node]; !exists {
		return ""
	}
	if wanted, _ := w.fits(uid, node); !wanted {
		return ""
	}
	for _, p := range w.podsOf(uid, node) {
		if p.Unplaceable != "" && p.Phase == fact.PodActive && !w.leaving(p) {
			return p.Unplaceable
		}
	}
	return ""
}

func (w *world) countAlias(node string) int {
	n := 0
	for _, a := range w.alias {
		if strings.HasPrefix(a, node+".") {
			n++
		}
	}
	return n
}

// finish reports the i-th action in flight. With seen, the API's event for a
// successful one comes before the answer, unless it has come already; without,
// it comes with the next call of deliver.
func (w *world) finish(i int, o action.Outcome, seen bool) {
	a := w.inFlight[i]
	w.inFlight = slices.Delete(w.inFlight, i, i+1)
	if o == action.OK && seen {
		w.event(a)
	} else if o == action.OK {
		w.late = append(w.late, a)
	}
	switch a := a.(type) {
	case *action.UpdateRollout:
		if _, stored := w.written[a.UID]; o == action.OK {
			w.written[a.UID] = a.Status
		} else if stored {
			w.written[a.UID] = v1alpha1.DaemonSetRolloutStatus{}
		}
	case *action.CreatePod:
		if o != action.OK {
			w.hurt[a.UID] = w.now
		}
		w.answer(a, o)
		if o == action.OK {
			w.m.Step(action.Answer{Action: a, Pod: w.uidOf(a)})
			return
		}
	case *action.DeletePod:
		w.deleted(a, o)
	}
	w.m.Step(action.Answer{Action: a, Outcome: o, Refused: w.refused})
}

func (w *world) deleted(a *action.DeletePod, o action.Outcome) {
	p, known := w.pods[a.PodUID]
	switch {
	case w.sets[a.UID].UID == "" || !known:
	case o != action.Failed && o != action.Unknown:
		delete(w.unsure, a.PodUID)
	default:
		delete(w.doomed, a.PodUID)
		if o == action.Unknown && !p.Terminating {
			w.unsure[a.PodUID] = w.now.Add(w.cfg.ExpectationsTimeout)
		}
	}
}

func (w *world) answer(a *action.CreatePod, o action.Outcome) {
	cell := cellKey(a.UID, a.Node)
	e, ok := w.creating[cell]
	if !ok || e.pod != a.PodName || e.answered {
		return
	}
	switch o {
	case action.Unknown:
		delete(w.unanswered, cell)
		if !e.seen {
			w.unanswered[cell] = expected{pod: a.PodName, until: w.now.Add(w.cfg.ExpectationsTimeout)}
		}
	case action.OK, action.NameTaken:
		delete(w.unanswered, cell)
	}
	uid := w.uidOf(a)
	_, seen := w.pods[uid]
	if o != action.OK || seen || w.left[cell] == uid {
		delete(w.creating, cell)
		return
	}
	e.answered, e.uid, e.until = true, uid, w.now.Add(w.cfg.SeenTimeout)
	w.creating[cell] = e
}

// deliver brings the events that are late.
func (w *world) deliver() {
	for len(w.late) > 0 {
		a := w.late[0]
		w.late = w.late[1:]
		w.event(a)
	}
}

func (w *world) uidOf(a *action.CreatePod) types.UID {
	if w.uids[a] == "" {
		w.made++
		w.uids[a] = types.UID(fmt.Sprintf("pod-%d", w.made))
	}
	return w.uids[a]
}

// event makes the effect of an action visible.
func (w *world) event(a action.Action) {
	switch a := a.(type) {
	case *action.CreatePod:
		uid := w.uidOf(a)
		if _, seen := w.pods[uid]; seen || w.left[cellKey(a.UID, a.Node)] == uid {
			return
		}
		w.setPod(fact.Pod{UID: uid, Name: a.PodName, Owner: a.UID, Node: a.Node,
			Revision: a.Revision, Before: a.Before, Created: noon.Add(time.Duration(w.made) * time.Millisecond)})
	case *action.DeletePod:
		if p, ok := w.pods[a.PodUID]; ok {
			p.Terminating = true
			w.setPod(p)
		}
	case *action.PointPod:
		if p, ok := w.pods[a.PodUID]; ok {
			p.Revision, p.Before, p.Settle, p.Restarts = a.Revision, a.Before, a.Settle, 0
			p.Pointed, p.Mounted = a.At, time.Time{}
			w.setPod(p)
		}
	case *action.FetchImages:
		if p, ok := w.pods[a.PodUID]; ok {
			p.Fetch = (fetch.Report{})
			if a.Revision != "" {
				p.Fetch = fetch.Report{Revision: a.Revision, At: w.now}
			}
			w.setPod(p)
		}
	case *action.UpdateRollout:
		if info, ok := w.rollouts[a.UID]; ok {
			info.Status = &a.Status
			w.setRollout(info)
		}
	case *action.UpdateStatus:
		if info, ok := w.sets[a.UID]; ok {
			info.Reported, info.Conditions = a.Status, a.Conditions
			w.sets[a.UID] = info
			w.m.Step(info)
		}
	}
}

func (w *world) podsOf(owner types.UID, node string) []fact.Pod {
	var out []fact.Pod
	for _, p := range w.pods {
		if p.Owner == owner && p.Node == node && node != "" {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b fact.Pod) int { return fact.Older(&a, &b) })
	return out
}

// readable replaces generated pod names.
func (w *world) readable(s string) string {
	for name, alias := range w.alias {
		s = strings.ReplaceAll(s, name, alias)
	}
	for letter := 'a'; letter <= 'h'; letter++ {
		s = strings.ReplaceAll(s, strings.Repeat(string(letter), 24), string(letter))
	}
	return s
}

func rollingUpdate(maxUnavailable, maxSurge string) fact.Strategy {
	return fact.Strategy{MaxUnavailable: intstr.Parse(maxUnavailable), MaxSurge: intstr.Parse(maxSurge)}
}
