package matrix

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
)

var (
	setNames  = []string{"logs", "net"}
	nodeNames = []string{"n0", "n1", "n2", "n3", "n4", "n5"}
	revisions = []string{"a", "b", "c"}
)

func drawSpec(t *rapid.T) corev1.PodSpec {
	spec := corev1.PodSpec{}
	switch rapid.IntRange(0, 5).Draw(t, "placement") {
	case 0:
		spec.NodeSelector = map[string]string{"disk": "ssd"}
	case 1:
		spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "disk", Operator: corev1.NodeSelectorOpIn, Values: []string{"ssd"}}}},
				{MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{"n1"}}}},
			}}}}
	case 2:
		spec.Tolerations = []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}}
	}
	return spec
}

func drawSet(t *rapid.T, w *world) {
	name := rapid.SampledFrom(setNames).Draw(t, "set")
	old := w.sets[types.UID(name)]
	info := fact.DaemonSet{
		UID: types.UID(name), Namespace: "default", Name: name, Generation: old.Generation + 1,
		Revision:        rapid.SampledFrom(revisions).Draw(t, "revision"),
		MinReadySeconds: rapid.SampledFrom([]int32{0, 0, 10}).Draw(t, "minReady"),
		Strategy: rapid.SampledFrom([]fact.Strategy{rollingUpdate("1", "0"), rollingUpdate("50%", "0"), rollingUpdate("0", "1"),
			rollingUpdate("0", "50%"), {OnDelete: true}}).Draw(t, "strategy"),
		Held: rapid.IntRange(0, 9).Draw(t, "held") == 0, Reported: old.Reported,
	}
	w.setDaemonSet(info, drawSpec(t))
}

func drawNode(t *rapid.T, w *world) {
	n := fact.Node{Name: rapid.SampledFrom(nodeNames).Draw(t, "node"), Labels: map[string]string{}}
	if rapid.Bool().Draw(t, "ssd") {
		n.Labels["disk"] = "ssd"
	}
	switch rapid.IntRange(0, 7).Draw(t, "taint") {
	case 0:
		n.Taints = []corev1.Taint{{Key: "spot", Effect: corev1.TaintEffectNoSchedule}}
	case 1:
		n.Taints = []corev1.Taint{{Key: "spot", Effect: corev1.TaintEffectNoExecute}}
	case 2:
		n.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}
	}
	w.setNode(n)
}

// drawForeignPod adds a pod that the matrix did not ask for.
func drawForeignPod(t *rapid.T, w *world) {
	w.made++
	w.setPod(fact.Pod{
		UID: types.UID(fmt.Sprintf("pod-%d", w.made)), Name: fmt.Sprintf("foreign-%d", w.made),
		Owner: types.UID(rapid.SampledFrom(setNames).Draw(t, "owner")),
		Node:  rapid.SampledFrom(append(nodeNames, "")).Draw(t, "node"), Bound: rapid.Bool().Draw(t, "bound"),
		Revision: rapid.SampledFrom(revisions).Draw(t, "revision"),
		Adopting: rapid.IntRange(0, 5).Draw(t, "adopting") == 0,
		Created:  noon.Add(time.Duration(w.made) * time.Millisecond),
	})
}

// drawPodChange is what agents, users and the garbage collector do to a pod.
func drawPodChange(t *rapid.T, w *world) {
	if len(w.pods) == 0 {
		return
	}
	p := w.pods[rapid.SampledFrom(slices.Sorted(maps.Keys(w.pods))).Draw(t, "pod")]
	switch rapid.SampledFrom([]string{"run", "run", "run", "unready", "fail", "succeed", "terminate", "vanish", "vanish", "adopted", "no room", "no room"}).Draw(t, "change") {
	case "run":
		p.Bound, p.Unplaceable = true, ""
		if !p.Ready && p.Phase == fact.PodActive {
			ahead := rapid.SampledFrom([]time.Duration{0, 0, time.Hour, -time.Hour}).Draw(t, "clock ahead")
			p.Ready, p.ReadySince = true, w.now.Add(ahead)
		}
	case "unready":
		p.Ready, p.ReadySince = false, time.Time{}
	case "fail":
		p.Phase, p.Ready, p.ReadySince = fact.PodFailed, false, time.Time{}
	case "succeed":
		p.Phase, p.Ready, p.ReadySince = fact.PodSucceeded, false, time.Time{}
	case "terminate":
		p.Terminating = true
	case "vanish":
		w.dropPod(p.UID)
		return
	case "adopted":
		p.Adopting = false
	case "no room":
		if !p.Bound {
			p.Unplaceable = rapid.SampledFrom([]string{"", "Insufficient cpu", "Insufficient memory"}).Draw(t, "why")
		}
	}
	w.setPod(p)
}

func drawFinish(t *rapid.T, w *world) {
	if len(w.inFlight) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.inFlight)-1).Draw(t, "action")
	o := rapid.SampledFrom([]action.Outcome{action.OK, action.OK, action.OK, action.Failed, action.Unknown, action.Gone, action.NameTaken}).Draw(t, "outcome")
	if o == action.NameTaken {
		if _, create := w.inFlight[i].(*action.CreatePod); !create {
			o = action.OK
		}
	}
	switch {
	case o == action.Unknown && rapid.IntRange(0, 2).Draw(t, "done all the same") == 0:
		w.event(w.inFlight[i])
		w.finish(i, o, true)
	case o == action.Unknown && rapid.IntRange(0, 1).Draw(t, "done later") == 0:
		w.late = append(w.late, w.inFlight[i])
		w.finish(i, o, true)
	case o == action.OK && rapid.IntRange(0, 3).Draw(t, "event first") == 0:
		w.event(w.inFlight[i]) // the answer comes with a later step
	case o == action.OK && rapid.IntRange(0, 2).Draw(t, "answer first") == 0:
		w.finish(i, o, false)
	default:
		w.finish(i, o, true)
	}
}

// checkTotals compares the running totals with the oracle's.
func checkTotals(t *rapid.T, w *world) {
	for _, row := range w.m.Dump().Rows {
		want := w.totalsOf(row.UID)
		got := oracleTotals{status: row.Status, unavailable: row.RolloutUnavailable, surges: row.RolloutSurging, ups: row.RolloutUp}
		if got.status != want.status || got.unavailable != want.unavailable || got.surges != want.surges || got.ups != want.ups {
			t.Fatalf("totals of %s are\n%+v, counted from nothing they are\n%+v\n%s", row.Name, got, want, w.m.Dump())
		}
	}
	if findings := w.m.Audit(); len(findings) > 0 {
		t.Fatalf("the audit found %q", findings)
	}
}

// checkActions takes the next actions and judges each by the facts and by the
// actions before it.
func checkActions(t *rapid.T, w *world) {
	creating, doomed := maps.Clone(w.creating), maps.Clone(w.doomed)
	told, placed := maps.Clone(w.told), maps.Clone(w.placed)
	actions := w.ready()
	checkConditions(t, w, actions)
	w.creating, creating = creating, w.creating
	w.doomed, doomed = doomed, w.doomed
	for _, a := range actions {
		ds := w.sets[a.Row()]
		totals := w.totalsOf(ds.UID)
		maxUnavailable, maxSurge := budgetOf(ds, int(totals.status.Desired))
		switch a := a.(type) {
		case *action.CreatePod:
			if ds.Held {
				t.Fatalf("%s although the row is held", a)
			}
			checkAlone(t, w, ds, a)
			if _, again := w.unanswered[cellKey(a.UID, a.Node)]; a.Reason == action.ReasonSurge && !again && totals.surges >= maxSurge {
				t.Fatalf("%s exceeds maxSurge %d", a, maxSurge)
			}
			cell := cellKey(a.UID, a.Node)
			w.creating[cell] = creating[cell]
		case *action.FailedPlacement:
			cell := cellKey(a.UID, a.Node)
			if why := told[cell]; why == a.Detail && !placed[cell] || w.unplaceable(a.UID, a.Node) != a.Detail {
				t.Fatalf("%s although told is %q", a, why)
			}
		case *action.DeletePod:
			if p := w.pods[a.PodUID]; ds.Held || p.Adopting || p.Terminating {
				t.Fatalf("%s although the row is held or the pod is not to be Touched", a)
			}
			if _, again := w.unsure[a.PodUID]; a.Reason == action.ReasonOutdated && !again && totals.unavailable >= maxUnavailable {
				t.Fatalf("%s exceeds maxUnavailable %d", a, maxUnavailable)
			}
			if _, again := w.unsure[a.PodUID]; a.Reason == action.ReasonSunset && !again && totals.ups <= int(totals.status.Desired) {
				t.Fatalf("%s though %d are up and %d wanted", a, totals.ups, totals.status.Desired)
			}
			w.doomed[a.PodUID] = doomed[a.PodUID]
		}
	}
	for _, row := range w.m.Dump().Rows {
		for i := range row.Cells {
			checkReason(t, w, row.UID, &row.Cells[i])
		}
	}
}

// checkReason: after Ready, every cell is as wanted or has a reason, and the reason
// is true.
func checkReason(t *rapid.T, w *world, uid types.UID, c *row.CellSnapshot) {
	ds, cell := w.sets[uid], cellKey(uid, c.Node)
	if got, want := c.Because == row.AsWanted, w.asWanted(uid, c.Node); got != want {
		t.Fatalf("%s is as wanted is %v, and it is said to be [%s]\n%s", cell, want, c.Because, w.m.Dump())
	}
	totals := w.totalsOf(uid)
	maxUnavailable, maxSurge := budgetOf(ds, int(totals.status.Desired))
	e, creating := w.creating[cell]
	here := w.podsOf(uid, c.Node)
	surges := ds.Strategy.Surges()
	deletes, paced := 0, w.now.Before(w.hurt[uid].Add(w.cfg.MaxRetryDelay))
	for _, a := range w.inFlight {
		switch a.(type) {
		case *action.DeletePod:
			if a.Row() == uid {
				deletes++
			}
		case *action.CreatePod:
			paced = paced || a.Row() == uid
		}
	}
	truth := map[row.Because]bool{
		row.SetDeleting: ds.Deleting, row.RevisionUnknown: ds.Held,
		row.CreationUnderWay: creating && !e.answered, row.CreationNotSeen: creating && e.answered,
		row.MaxUnavailable: !surges && totals.unavailable >= maxUnavailable, row.MaxSurge: surges && totals.surges >= maxSurge,
		row.OtherDeletions: deletes >= w.cfg.BurstReplicas, row.OtherCreations: paced,
		row.Adopting:         slices.ContainsFunc(here, func(p fact.Pod) bool { return p.Adopting }),
		row.FailedAgain:      slices.ContainsFunc(here, func(p fact.Pod) bool { return p.Phase == fact.PodFailed }),
		row.PodTerminating:   slices.ContainsFunc(here, func(p fact.Pod) bool { return p.Terminating }),
		row.DeletionUnderWay: slices.ContainsFunc(here, func(p fact.Pod) bool { _, doomed := w.doomed[p.UID]; return doomed }),
		row.WaitsForUser:     ds.Strategy.OnDelete, row.LeftToCollector: w.nodes[c.Node].Name == "",
	}
	if holds, known := truth[c.Because]; known && !holds {
		t.Fatalf("%s waits since %q, which is not so\n%s", cell, c.Because, w.m.Dump())
	}
}

// asWanted: the oracle's idea of a place that needs nothing.
func (w *world) asWanted(uid types.UID, node string) bool {
	if _, creating := w.creating[cellKey(uid, node)]; creating {
		return false
	}
	ds := w.sets[uid]
	here := slices.DeleteFunc(w.podsOf(uid, node), func(p fact.Pod) bool { return p.Phase != fact.PodActive && p.Terminating })
	if wanted, _ := w.fits(uid, node); !wanted || w.nodes[node].Name == "" {
		return len(here) == 0
	}
	return len(here) == 1 && here[0].Phase == fact.PodActive && here[0].Revision == ds.Revision && !w.leaving(here[0]) &&
		!here[0].Adopting && w.unsure[here[0].UID].IsZero() && w.available(here[0], ds)
}

// checkConditions compares the conditions with the oracle's, and sees that every
// pod that cannot be placed has been told of.
func checkConditions(t *rapid.T, w *world, actions []action.Action) {
	for uid, ds := range w.sets {
		if ds.Deleting {
			continue
		}
		if got, want := w.m.rows[uid].Conditions(), w.conditionsOf(uid); got != want {
			t.Fatalf("conditions of %s are\n%+v, computed from nothing they are\n%+v\n%s", ds.Name, got, want, w.m.Dump())
		}
		for node := range w.nodes {
			if why := w.unplaceable(uid, node); why != "" && w.told[cellKey(uid, node)] != why {
				t.Fatalf("nobody was told that %s has no room for %s: %s", node, ds.Name, why)
			}
		}
	}
	for _, a := range actions {
		if a, ok := a.(*action.UpdateStatus); ok && a.Conditions != w.conditionsOf(a.UID) {
			t.Fatalf("%s writes conditions\n%+v, want\n%+v", a, a.Conditions, w.conditionsOf(a.UID))
		}
	}
}

func budgetOf(ds fact.DaemonSet, nodes int) (int, int) {
	return ds.Strategy.Budget(nodes)
}

// checkAlone: a new pod has no neighbour; with surge, no live one of its own
// revision.
func checkAlone(t *rapid.T, w *world, ds fact.DaemonSet, a *action.CreatePod) {
	if _, twice := w.creating[cellKey(a.UID, a.Node)]; twice {
		t.Fatalf("%s although one is on its way", a)
	}
	if run, _ := w.fits(a.UID, a.Node); !run || w.nodes[a.Node].Name == "" {
		t.Fatalf("%s although the node does not fit", a)
	}
	for _, p := range w.podsOf(a.UID, a.Node) {
		_, going := w.doomed[p.UID]
		live := !going && !p.Terminating
		switch {
		case p.Phase != fact.PodActive && p.Terminating:
		case !ds.Strategy.Surges():
			t.Fatalf("%s although pod %+v is there", a, p)
		case live && p.Revision == ds.Revision:
			t.Fatalf("%s although a pod of that revision is there: %+v", a, p)
		}
	}
}

func TestRandomEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(row.Config{BurstReplicas: rapid.SampledFrom([]int{2, 250}).Draw(t, "burst")})
		for range 4 {
			drawNode(t, w)
		}
		drawSet(t, w)
		t.Repeat(map[string]func(*rapid.T){
			"calm":     func(t *rapid.T) { checkActions(t, w); w.calm() },
			"calm 2":   func(t *rapid.T) { checkActions(t, w); w.calm() },
			"set":      func(t *rapid.T) { drawSet(t, w) },
			"drop set": func(t *rapid.T) { w.dropDaemonSet(types.UID(rapid.SampledFrom(setNames).Draw(t, "set"))) },
			"node":     func(t *rapid.T) { drawNode(t, w) },
			"node 2":   func(t *rapid.T) { drawNode(t, w) },
			"drop node": func(t *rapid.T) {
				w.dropNode(rapid.SampledFrom(nodeNames).Draw(t, "node"))
			},
			"pod":      func(t *rapid.T) { drawForeignPod(t, w) },
			"change":   func(t *rapid.T) { drawPodChange(t, w) },
			"change 2": func(t *rapid.T) { drawPodChange(t, w) },
			"finish":   func(t *rapid.T) { drawFinish(t, w) },
			"finish 2": func(t *rapid.T) { drawFinish(t, w) },
			"deliver":  func(*rapid.T) { w.deliver() },
			"ready":    func(t *rapid.T) { checkActions(t, w) },
			"tick":     func(t *rapid.T) { w.tick(time.Duration(rapid.IntRange(1, 400).Draw(t, "seconds")) * time.Second) },
			"":         func(t *rapid.T) { checkTotals(t, w) },
		})
		checkSettles(t, w)
	})
}

// checkSettles lets everything succeed from here on: in the end every node that
// fits runs one available pod of the current revision, the status says so, and
// there is nothing left to do.
func checkSettles(t *rapid.T, w *world) {
	for uid, info := range w.sets {
		info.Held = false
		w.setDaemonSet(info, w.specs[uid])
	}
	for range 2000 {
		checkActions(t, w)
		w.calm()
		checkTotals(t, w)
		w.tick(20 * time.Second)
		if at, ok := w.m.NextTick(); !ok && len(w.m.dirty) == 0 {
			break
		} else if ok && at.Sub(w.now) > 20*time.Second {
			w.tick(at.Sub(w.now))
		}
	}
	if actions := w.ready(); len(actions) > 0 {
		t.Fatalf("it does not come to rest: %s\n%s", actions, w.m.Dump())
	}
	for _, p := range w.pods {
		_, stays := w.fits(p.Owner, p.Node)
		if _, exists := w.nodes[p.Node]; p.Node != "" && w.sets[p.Owner].UID != "" && (!exists || !stays) {
			t.Fatalf("it came to rest with pod %s on node %s, which does not fit", p.Name, p.Node)
		}
	}
	for uid, ds := range w.sets {
		total := w.totalsOf(uid)
		n := total.status.Desired
		want := fact.Status{ObservedGeneration: ds.Generation, Desired: n, Current: n, Ready: n, Updated: n, Available: n}
		if ds.Strategy.OnDelete {
			want.Updated = total.status.Updated
		}
		want.Misscheduled = total.status.Misscheduled // kept on nodes with an untolerated NoSchedule taint
		if total.status != want || ds.Reported != want {
			t.Fatalf("%s came to rest at %v, reported as %v, want %v\n%s", ds.Name, total.status, ds.Reported, want, w.m.Dump())
		}
	}
}

// calm lets every action succeed and every pod do what it should.
func (w *world) calm() {
	w.deliver()
	for len(w.inFlight) > 0 {
		w.finish(0, action.OK, true)
	}
	for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
		w.obey(w.pods[uid])
	}
}

// obey is a good scheduler, agent and garbage collector.
func (w *world) obey(p fact.Pod) {
	_, nodeExists := w.nodes[p.Node]
	switch {
	case p.Terminating, !nodeExists && p.Bound, w.sets[p.Owner].UID == "":
		w.dropPod(p.UID)
	case p.Adopting:
		p.Adopting = false
		w.setPod(p)
	case p.Phase == fact.PodActive && !p.Ready && nodeExists:
		p.Bound, p.Ready, p.ReadySince, p.Unplaceable = true, true, w.now, ""
		w.setPod(p)
	}
}

// Whatever order the same facts come in, the picture is the same.
func TestOrderOfArrivalDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(row.Config{})
		for range 3 {
			drawSet(t, w)
		}
		for range 8 {
			drawNode(t, w)
		}
		for range 10 {
			drawForeignPod(t, w)
			drawPodChange(t, w)
		}
		want := fresh(w, rand.New(rand.NewSource(1))).Dump().String()
		got := fresh(w, rand.New(rand.NewSource(rapid.Int64().Draw(t, "order")))).Dump().String()
		if got != want {
			t.Fatalf("one order gives\n%s\nanother gives\n%s", want, got)
		}
	})
}

// fresh tells a new matrix all facts in a random order.
func fresh(w *world, order *rand.Rand) *Matrix {
	m := New(w.cfg)
	m.Step(fact.Now{Time: w.now})
	var facts []func()
	for _, uid := range slices.Sorted(maps.Keys(w.sets)) {
		facts = append(facts, func() { m.Step(w.sets[uid]) })
	}
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		facts = append(facts, func() { m.Step(w.nodes[name]) })
	}
	for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
		facts = append(facts, func() { m.Step(w.pods[uid]) })
	}
	order.Shuffle(len(facts), func(i, j int) { facts[i], facts[j] = facts[j], facts[i] })
	for _, f := range facts {
		f()
	}
	return m
}

// A pod's name is a function of the facts: another process that is told the same
// asks for the same pods by the same names.
func TestNamesFollowFromTheFacts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(row.Config{RetryDelay: time.Nanosecond})
		drawSet(t, w)
		for range 6 {
			drawNode(t, w)
		}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				drawSet(t, w)
			case 1:
				drawForeignPod(t, w)
			case 2:
				drawPodChange(t, w)
			default:
				checkActions(t, w)
				w.calm()
			}
		}
		w.calm()
		w.tick(time.Hour)
		want := creations(w.m.Ready())
		for cell, name := range creations(fresh(w, rand.New(rand.NewSource(1))).Ready()) {
			if want[cell] != "" && want[cell] != name {
				t.Fatalf("the pod of %s is named %s, and by another process %s", cell, want[cell], name)
			}
		}
	})
}

func creations(actions []action.Action) map[string]string {
	out := map[string]string{}
	for _, a := range actions {
		if a, ok := a.(*action.CreatePod); ok {
			out[cellKey(a.UID, a.Node)] = a.PodName
		}
	}
	return out
}
