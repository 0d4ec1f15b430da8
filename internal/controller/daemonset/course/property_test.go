package course

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

func drawPolicy(t *rapid.T) *rolloutpolicy.Policy {
	var text strings.Builder
	soak := func() int { return rapid.IntRange(0, 20).Draw(t, "soak") }
	if rapid.Bool().Draw(t, "canary") {
		fmt.Fprintf(&text, "- {name: canary, count: %d, soak: %ds, approval: %s%s}\n",
			rapid.IntRange(1, 4).Draw(t, "count"),
			soak(), rapid.SampledFrom([]string{"Automatic", "Manual"}).Draw(t, "approval"), drawFetch(t))
	}
	if rapid.Bool().Draw(t, "ramp") {
		fmt.Fprintf(&text, "- {name: grows, nodes: {matchLabels: {zone: z0}}, ramp: {from: %d}, soak: %ds%s}\n",
			rapid.IntRange(1, 2).Draw(t, "from"), soak(), drawFetch(t))
	}
	if rapid.Bool().Draw(t, "zones") {
		fmt.Fprintf(&text, "- {name: zones, each: zone, maxUnavailable: %d, soak: %ds%s}\n",
			rapid.IntRange(1, 4).Draw(t, "most"), soak(), drawFetch(t))
	}
	waves := "waves:\n" + text.String()
	if text.Len() == 0 {
		waves = ""
	}
	waves += rapid.SampledFrom([]string{"", "domains: [{key: rack, maxUnavailable: 1}]\n",
		"domains: [{key: rack, maxUnavailable: 50%}, {key: zone, maxUnavailable: 3}]\n"}).Draw(t, "domains")
	waves += fmt.Sprintf("failure: {%s, startDeadline: %ds, then: %s}\n",
		rapid.SampledFrom([]string{"min: 1", "min: 2", "max: 50%", "max: 2"}).Draw(t, "failure"),
		rapid.SampledFrom([]int{5, 20, 60, 600}).Draw(t,
			"deadline"), rapid.SampledFrom([]string{"Halt", "Rollback"}).Draw(t, "then"))
	if rapid.Bool().Draw(t, "windows") {
		waves += windows
	}
	return policy(fatal{t}, waves)
}

// windows are two minutes of every four, around the time of the world by any of its clocks.
var windows = func() string {
	text := "windows:\n"
	for at := time.Date(2026, 3, 2, 8, 30, 0, 0, time.UTC); at.Hour() < 12; at = at.Add(5 * time.Minute) {
		text += fmt.Sprintf("- {from: %q, to: %q}\n", at.Format("15:04"), at.Add(3*time.Minute).Format("15:04"))
	}
	return text
}()

// fatal lets policy fail a rapid test.
type fatal struct{ *rapid.T }

func (fatal) Helper() {}

func TestRandomFleets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		w.hostile = &hostile{t: t, off: drawOff(t), failed: map[string]bool{}, begun: map[string]Permit{},
			slow: rapid.Bool().Draw(t, "slow")}
		tick(w.course, w.clock())
		p := drawPolicy(t)
		w.stops = time.Duration(rapid.IntRange(0, 5).Draw(t, "stops")) * time.Second
		w.addFleet(2, rapid.IntRange(1, 3).Draw(t, "racks"), rapid.IntRange(1, 4).Draw(t, "each"),
			rapid.SampledFrom([]string{"v1", "v1", ""}).Draw(t, "first"))
		for _, name := range w.names() {
			w.nodes[name].skew = drawOff(t)
		}
		ds := daemonSet("v1")
		ds.Fetches = rapid.Bool().Draw(t, "can fetch")
		ds.Surge, ds.MaxUnavailable, ds.MinReadySeconds = rapid.Bool().Draw(t, "surge"), drawMost(t), drawMinReady(t)
		w.start(p, ds)
		w.check = func(p Permit) {
			w.noteTaken(nil)
			w.limits(t, p)
			w.noteTaken(&p)
		}
		revision := 1
		for range rapid.IntRange(5, 40).Draw(t, "events") {
			if names := w.names(); len(names) > 0 {
				name := rapid.SampledFrom(names).Draw(t, "node")
				if rapid.Bool().Draw(t, "hostile") {
					hostileEvent(t, w, name)
				} else {
					randomEvent(t, w, name, &revision)
				}
			}
			recount(t, w.course)
			w.pass(time.Duration(rapid.IntRange(0, 6).Draw(t, "seconds")) * time.Second)
			recount(t, w.course)
		}
		w.settles(t, revision)
	})
}

func drawMost(t *rapid.T) rolloutpolicy.Limit {
	return rolloutpolicy.LimitOf(rapid.SampledFrom([]intstr.IntOrString{intstr.FromString("10%"),
		intstr.FromString("30%"), intstr.FromInt(1), intstr.FromInt(3)}).Draw(t, "maxUnavailable"))
}

func drawMinReady(t *rapid.T) int32 {
	return rapid.SampledFrom([]int32{0, 0, 1, 4, 10}).Draw(t, "minReadySeconds")
}

// drawRule makes up which nodes a revision selects.
func drawRule(t *rapid.T) func(node string) bool {
	switch rapid.SampledFrom([]string{"all", "all", "zone", "rack", "none"}).Draw(t, "rule") {
	case "zone":
		return func(node string) bool { return node < "z1" }
	case "rack":
		return func(node string) bool { return strings.Contains(node, "-r0-") }
	case "none":
		return func(string) bool { return false }
	}
	return nil
}

func randomEvent(t *rapid.T, w *world, name string, revision *int) {
	c := w.course
	switch rapid.IntRange(0, 14).Draw(t, "event") {
	case 0, 1:
		*revision++
		w.rules[fmt.Sprint("v", *revision)] = drawRule(t)
		w.update(fmt.Sprint("v", *revision))
	case 2:
		w.fault(name, rapid.SampledFrom([]string{"node does not answer", "", "disk pressure"}).Draw(t, "fault"),
			rapid.Bool().Draw(t, "silent"))
	case 3:
		w.removeNode(name)
	case 4:
		w.addNode(fmt.Sprintf("new-%d", rapid.IntRange(0, 5).Draw(t, "new")), map[string]string{"zone": "z1"}, "")
	case 5:
		c.SetSpec(v1alpha1.DaemonSetRolloutSpec{Paused: rapid.Bool().Draw(t, "paused"),
			Approved: &v1alpha1.StepApproval{Revision: c.state.target, Step: "canary"}})
	case 6:
		w.drawBad(t, fmt.Sprint("v", *revision))
	case 12: // the way back does not work either
		w.drawBad(t, c.state.stable)
	case 14: // the node comes to another rack
		m, z := w.nodes[name], rapid.IntRange(0, 1).Draw(t, "zone")
		m.labels = map[string]string{"zone": fmt.Sprint("z", z), "rack": fmt.Sprintf("z%d-r%d", z, rapid.IntRange(0, 2).Draw(t, "rack"))}
		m.object = nil
		w.tell(name)
		w.noteTaken(nil)
	case 13:
		w.unreadable[c.state.stable] = c.state.stable != w.ds.Newest && rapid.Bool().Draw(t, "unreadable")
		w.tellRules()
	case 7:
		delete(w.failed, c.state.target)
		w.tryAgain()
		c.SetSpec(v1alpha1.DaemonSetRolloutSpec{Retry: &v1alpha1.Retry{Revision: c.state.target,
			Count: int32(*revision)}})
	case 8:
		m := w.nodes[name]
		m.daemon, m.out = standing.Daemon{}, rapid.Bool().Draw(t, "out")
		m.unready()
		w.tell(name)
		w.noteTaken(nil) // it may just have become one that is to have no daemon
	case 9:
		f := rapid.SampledFrom([]Following{Followed, Lost, Gone}).Draw(t, "following")
		var known *rolloutpolicy.Policy
		if f == Followed {
			known = w.policy
		}
		c.SetPolicy(known, f, "for a test")
	case 10:
		w.policy = drawPolicy(t)
		c.SetPolicy(w.policy, Followed, "")
	case 11: // the controller starts again, and knows what the status says
		w.shifted(t)
		w.again()
	}
}

// drawBad has a revision fail on some nodes.
func (w *world) drawBad(t *rapid.T, revision string) {
	ill, everywhere := rapid.SampledFrom(ills).Draw(t, "ill"), rapid.Bool().Draw(t, "everywhere")
	w.bad = func(r, n string) string {
		if r == revision && (everywhere || n < "z1") {
			return ill
		}
		return ""
	}
}

// hostileEvent is one that has nothing to do with the change.
func hostileEvent(t *rapid.T, w *world, name string) {
	m := w.nodes[name]
	switch rapid.IntRange(0, 12).Draw(t, "hostileEvent") {
	case 12: // somebody sets the clock
		w.off, w.set = drawOff(t), true
	case 11:
		m.fetches = drawFetches(t, true)
	case 0:
		w.shifted(t)
		w.crash()
	case 1:
		w.dieAfter = rapid.IntRange(1, 3).Draw(t, "dieAfter")
	case 2:
		w.ds.Surge, w.ds.MaxUnavailable = rapid.Bool().Draw(t, "surge"), drawMost(t)
		w.tellRules()
	case 3:
		w.setMinReady(rapid.SampledFrom([]int32{0, 4, 10, 7200}).Draw(t, "minReadySeconds"))
	case 4:
		m.flaps = !m.flaps
	case 5:
		w.refuses = rapid.SampledFrom([]string{"", w.course.state.stable, w.ds.Newest}).Draw(t, "refuses")
	case 6:
		w.stuck = rapid.SampledFrom([]string{"", name}).Draw(t, "stuck")
	case 7:
		w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Abort: &v1alpha1.Abort{Revision: w.ds.Newest}})
	case 8:
		if rapid.Bool().Draw(t, "maintained") {
			w.maintain(name, rapid.Bool().Draw(t, "stops"))
			break
		}
		m.fault, m.silent, m.since, m.maintained = cordon, false, time.Time{}, false
		w.tell(name)
	case 9:
		w.replaceOne()
	case 10: // the policy cannot be read when the next controller starts
		w.shifted(t)
		w.againWith(nil, rapid.SampledFrom([]Following{Lost, Gone}).Draw(t, "following"), "it cannot be read")
	}
}

// again makes a new course from the facts and the old one's status.
func (w *world) again() { w.againWith(w.course.policy, w.course.follow, w.course.why) }

// againWith has a new process go on, which finds that policy.
func (w *world) againWith(p *rolloutpolicy.Policy, f Following, why string) {
	w.againFrom(w.course.Status(), p, f, why)
}

// crash has a new process go on with what was stored, and no more.
func (w *world) crash() { w.againFrom(w.stored, w.course.policy, w.course.follow, w.course.why) }

func (w *world) againFrom(status v1alpha1.DaemonSetRolloutStatus, p *rolloutpolicy.Policy, f Following, why string) {
	old := w.course
	w.course = New()
	tick(w.course, w.clock())
	w.course.SetPolicy(p, f, why)
	w.course.SetSpec(old.spec)
	w.tellRules()
	for _, name := range w.names() {
		w.tell(name)
	}
	w.course.ExpectRecovery()
	w.course.Start(&status)
}

// settles checks liveness: when everything is well again, and everybody agrees, the
// next revision reaches every node, also where nodes come and go all the time.
func (w *world) settles(t *rapid.T, revision int) {
	c := w.course
	w.bad = func(string, string) string { return "" }
	clear(w.unreadable)
	w.refuses, w.dieAfter, w.stuck = "", 0, ""
	dead := map[string]bool{} // these never come back, and hold up nobody but their rack
	if names := w.names(); len(names) >= 6 && rapid.Bool().Draw(t, "dead") {
		dead[rapid.SampledFrom(names).Draw(t, "which")] = true
	}
	for _, name := range w.names() {
		w.nodes[name].out, w.nodes[name].flaps, w.nodes[name].fetches = false, false, drawFetches(t, false)
		if dead[name] {
			w.fault(name, "the node does not answer", true)
			continue
		}
		w.fault(name, "", false)
	}
	w.tellRules()
	w.setMinReady(min(w.ds.MinReadySeconds, 10))
	final := fmt.Sprint("v", revision+1)
	c.SetPolicy(w.policy, Followed, "")
	w.noteTaken(nil) // the change before may be over with that, and leave nodes out
	c.SetSpec(v1alpha1.DaemonSetRolloutSpec{})
	w.rules[final] = drawRule(t)
	w.update(final)
	c.SetSpec(v1alpha1.DaemonSetRolloutSpec{Approved: &v1alpha1.StepApproval{Revision: final, Step: v1alpha1.AllSteps}})
	churn := len(dead) == 0 && w.policy.Failure.StartDeadline < 10*time.Minute && len(w.nodes) >= 4 &&
		rapid.Bool().Draw(t, "churn")
	// Between two that join there is room for a change with a limit of one, and nodes stay until they have soaked.
	for end, joins := w.now.Add(40*time.Minute), w.now; w.now.Before(end) && !w.hasSettled(final, dead); {
		if churn && !w.now.Before(joins) {
			w.replaceOne()
			joins = w.now.Add(21 * time.Second)
		}
		w.pass(7 * time.Second)
	}
	recount(t, c)
	if c.faulty() {
		return // of so few nodes one is too many
	}
	if !w.hasSettled(final, dead) {
		for _, name := range w.names() {
			verdict, why := c.Verdict(name)
			t.Logf("%s: %s: %s %+v", name, verdict, why, w.nodes[name].daemon)
		}
		phase, message := c.Phase()
		t.Fatalf("%s: %s; %v do not have what %s wants; %v are dead", phase, message, w.unsettled(final, dead), final,
			dead)
	}
}

func (w *world) hasSettled(final string, dead map[string]bool) bool {
	phase, _ := w.course.Phase()
	return (len(dead) > 0 || phase == v1alpha1.PhaseComplete) && len(w.unsettled(final, dead)) == 0
}

// unsettled are the nodes that do not have what the revision wants.
func (w *world) unsettled(final string, dead map[string]bool) (wrong []string) {
	for _, name := range w.names() {
		has, wants := w.nodes[name].daemon, w.Selects(final, name)
		ok := wants && has.Revision == final && has.Available || !wants && has.Empty()
		young := w.now.Before(w.nodes[name].joined.Add(time.Minute))
		if !ok && !young && !dead[name] && !w.besideDead(dead, name) {
			wrong = append(wrong, name)
		}
	}
	return wrong
}

// besideDead reports whether the node shares a domain with a dead one, and may have to wait for it.
func (w *world) besideDead(dead map[string]bool, name string) bool {
	for _, d := range w.policy.Domains {
		value, has := w.nodes[name].labels[d.Key]
		for o := range dead {
			if other, also := w.nodes[o].labels[d.Key]; has && also && value == other {
				return true
			}
		}
	}
	return false
}
