package matrix_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// TestAnyRevisionMayBeBad lets everything go wrong that a rollout must withstand: revisions that do not
// work, the stable one too, on some nodes or on all; nodes that never come back; revisions that nobody
// can read any more; policies that are edited, lost, deleted and made again; controllers that die at any
// moment. All the while no more working daemons are taken away than may be, nothing that failed goes out
// again unasked, and in the end every node that can has what it is to have.
func TestAnyRevisionMayBeBad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPlay(t)
		for range rapid.IntRange(3, 25).Draw(t, "events") {
			p.event()
			p.f.pass(time.Duration(rapid.SampledFrom([]int{0, 1, 3, 10, 40, 200}).Draw(t, "seconds")) * time.Second)
			p.audit()
		}
		p.ends()
	})
}

// play is a fleet on which a referee looks.
type play struct {
	t         *rapid.T
	f         *fleet
	r         *referee
	revisions []string
	// joined counts the nodes that came later.
	joined int
}

func newPlay(t *rapid.T) *play {
	f := newFleet(rapid.Uint64().Draw(t, "seed"))
	f.flaky = rapid.SampledFrom([]int{0, 0, 10}).Draw(t, "flaky")
	p := &play{t: t, f: f, r: newReferee(t, f), revisions: fleetRevisions}
	if rapid.Bool().Draw(t, "content") {
		p.revisions = contentRevisions
	}
	nodes := rapid.IntRange(4, 14).Draw(t, "nodes")
	for i := range nodes {
		p.join(i)
	}
	law := drawRules(t)
	for i := range rapid.SampledFrom([]int{1, 1, 2}).Draw(t, "sets") {
		set := f.addSet(fmt.Sprintf("set-%d", i), p.revisions[0], intstr.FromInt(rapid.IntRange(1, 4).Draw(t, "most")), rapid.IntRange(0, 3).Draw(t, "surge") == 0)
		set.info.Live = p.drawLive(t)
		f.tell(set)
		p.obey(set, law, "policy-1")
	}
	f.pass(2 * time.Minute)
	for _, set := range f.sets {
		if st, _ := f.m.Rollout(set.info.UID); st.Phase != v1alpha1.PhaseComplete {
			p.r.fatal(set, "the first revision is not everywhere")
		}
	}
	return p
}

func (p *play) join(i int) {
	labels := map[string]string{"zone": fmt.Sprintf("z%d", i%2), "rack": fmt.Sprintf("r%d", i%5)}
	if i%4 == 0 {
		labels["fleet"] = "canary"
	}
	if i%3 > 0 {
		labels[content.LiveName] = "true"
	}
	p.f.join(fmt.Sprintf("n%02d", i), labels)
}

// obey has a DaemonSet follow rules.
func (p *play) obey(set *daemons, law rules, policy types.UID) {
	p.r.rules[set.info.UID] = law
	if set.rollout == nil {
		p.r.forget(set.info.UID) // a rollout that begins knows nothing of a change without a policy
	}
	p.f.follow(set, func(i *fact.Rollout) {
		i.Policy, i.PolicyUID, i.Following = law.policy(p.r.t), policy, course.Followed
	})
}

func (p *play) set() *daemons {
	return p.f.sets[types.UID(fmt.Sprintf("set-%d", rapid.IntRange(0, len(p.f.sets)-1).Draw(p.t, "set")))]
}

func (p *play) node() string { return rapid.SampledFrom(p.f.names()).Draw(p.t, "node") }

// some draws a few nodes, or all.
func (p *play) some() []string {
	if rapid.Bool().Draw(p.t, "all") {
		return p.f.names()
	}
	return rapid.SliceOfNDistinct(rapid.SampledFrom(p.f.names()), 1, 3, rapid.ID[string]).Draw(p.t, "nodes")
}

// fleetRevisions are of four templates, contentRevisions of one: whoever can read one of these can read all.
var (
	fleetRevisions   = []string{"a", "b", "c", "d"}
	contentRevisions = []string{ofContent("a"), ofContent("b"), ofContent("c"), ofContent("d")}
)

func ofContent(letter string) string { return content.Revision("t", strings.Repeat(letter, 24)) }

// drawLive draws between which of the revisions pods go without a restart.
func (p *play) drawLive(t *rapid.T) *fact.Live {
	if content.IDOf(p.revisions[0]) == "" || !rapid.Bool().Draw(t, "live") {
		return nil
	}
	out := &fact.Live{Settle: rapid.SampledFrom([]time.Duration{0, 5 * time.Second}).Draw(t, "settle")}
	for _, from := range p.revisions {
		for _, to := range p.revisions {
			if from != to && rapid.IntRange(0, 3).Draw(t, "way") > 0 {
				out.Ways = append(out.Ways, [2]string{content.IDOf(from), content.IDOf(to)})
			}
		}
	}
	return out
}

// event is one thing that happens.
func (p *play) event() {
	t, f := p.t, p.f
	switch rapid.IntRange(0, 15).Draw(t, "event") {
	case 0, 1, 2:
		f.update(p.set(), rapid.SampledFrom(p.revisions).Draw(t, "revision"))
	case 3, 4:
		p.set().afflict(rapid.SampledFrom(p.revisions).Draw(t, "bad"), rapid.SampledFrom([]ailment{crashes, noImage, stalls, refused, deaf}).Draw(t, "how"), p.some()...)
	case 5: // it never comes back, unless something says so
		f.health(p.node(), "the node does not answer", true)
	case 6:
		name := p.node()
		f.health(name, rapid.SampledFrom([]string{"", "", "disk pressure"}).Draw(t, "fault"), false)
	case 7: // somebody deletes a ControllerRevision, or it comes back
		set := p.set()
		revision := rapid.SampledFrom(p.revisions).Draw(t, "hidden")
		set.hidden[revision] = !set.hidden[revision] && revision != set.info.Revision
		f.tell(set)
	case 8:
		p.obey(p.set(), drawRules(t), rapid.SampledFrom([]types.UID{"policy-1", "policy-2"}).Draw(t, "policy"))
	case 9:
		following := rapid.SampledFrom([]course.Following{course.Followed, course.Lost, course.Gone}).Draw(t, "following")
		if set := p.set(); following != course.Followed && set.rollout != nil {
			f.follow(set, func(i *fact.Rollout) { i.Policy, i.Following, i.Why = nil, following, "for a test" })
		} else {
			p.obey(set, p.r.rules[set.info.UID], "policy-1")
		}
	case 10, 11:
		p.words(p.set())
	case 12, 13:
		f.restart()
	case 14:
		if here := f.on("", p.node()); len(here) > 0 {
			f.remove(here[0].UID)
		}
	case 15:
		p.rare()
	}
}

// rare events: a node joins or leaves, what ran falls, a policy that has nothing to do ends, and somebody changes the
// strategy.
func (p *play) rare() {
	t, f := p.t, p.f
	switch rapid.IntRange(0, 6).Draw(t, "rare") {
	case 0:
		p.joined++
		p.join(20 + p.joined)
	case 1:
		if len(f.nodes) > 4 {
			f.leave(p.node())
		}
	case 2:
		for _, d := range f.on("", p.node()) {
			if bad := f.sets[d.Owner].bad[d.Revision][d.Node]; bad != "" && bad != refused && bad != deaf && d.Ready {
				d.Ready, d.ReadySince, d.Restarts, d.Trouble = false, time.Time{}, d.Restarts+9, "it crashes"
				f.set(d)
			}
		}
	case 3:
		set := p.set()
		set.info.Live = p.drawLive(t)
		f.tell(set)
	case 4:
		set := p.set()
		if st, decides := f.m.Rollout(set.info.UID); decides && st.Phase == v1alpha1.PhaseComplete {
			f.forsake(set)
		}
	case 5, 6:
		set := p.set()
		set.proceed(intstr.FromInt(rapid.IntRange(1, 4).Draw(t, "most")), rapid.Bool().Draw(t, "surge"))
		set.info.Strategy.OnDelete = rapid.IntRange(0, 3).Draw(t, "on delete") == 0
		f.tell(set)
	}
}

// words are what people write into a rollout.
func (p *play) words(set *daemons) {
	st, decides := p.f.m.Rollout(set.info.UID)
	if !decides {
		return
	}
	p.f.follow(set, func(i *fact.Rollout) {
		i.Generation++
		switch rapid.SampledFrom([]string{"pause", "approve", "approve", "retry", "abort"}).Draw(p.t, "word") {
		case "pause":
			i.Spec.Paused = !i.Spec.Paused
		case "approve":
			i.Spec.Approved = &v1alpha1.StepApproval{Revision: st.TargetRevision, Change: st.Change, Step: v1alpha1.AllSteps}
		case "retry":
			set.retries++
			i.Spec.Retry = &v1alpha1.Retry{Revision: st.TargetRevision, Count: set.retries}
		case "abort":
			i.Spec.Abort = &v1alpha1.Abort{Revision: st.TargetRevision}
		}
	})
}

func (p *play) audit() {
	for uid := range p.f.sets {
		st, decides := p.f.m.Rollout(uid)
		sum := 0
		for _, n := range st.Counts {
			sum += int(n)
		}
		if decides && sum != len(p.f.nodes) {
			p.t.Fatalf("the rollout of %s counts %d nodes %v, and there are %d", uid, sum, st.Counts, len(p.f.nodes))
		}
	}
	if findings := p.f.m.Audit(); len(findings) > 0 {
		p.t.Fatalf("the audit found %q", findings)
	}
}

// ends has people let everything go on. What is dead stays so, and what is bad; the API refuses nothing
// any more.
func (p *play) ends() {
	p.f.flaky = 0
	for _, set := range p.f.sets {
		set.info.Strategy.OnDelete = false
		p.f.tell(set)
		for _, on := range set.bad {
			maps.DeleteFunc(on, func(_ string, is ailment) bool { return is == refused || is == deaf })
		}
		law := p.r.rules[set.info.UID]
		law.pace = 0
		p.obey(set, law, "policy-1")
	}
	for range 6 {
		for _, set := range p.f.sets {
			st, _ := p.f.m.Rollout(set.info.UID)
			p.f.follow(set, func(i *fact.Rollout) {
				i.Generation++
				i.Spec.Paused, i.Spec.Approved = false, &v1alpha1.StepApproval{Revision: st.TargetRevision, Change: st.Change, Step: v1alpha1.AllSteps}
			})
		}
		p.f.pass(20 * time.Minute)
	}
	p.audit()
	for _, set := range p.f.sets {
		p.arrived(set)
	}
}

// arrived sees that every node which can has what it is to have.
func (p *play) arrived(set *daemons) {
	st, _ := p.f.m.Rollout(set.info.UID)
	w, law := wayOf(&st), p.r.rules[set.info.UID]
	if st.Phase == v1alpha1.PhaseHalted || !set.readable(w.destination()) {
		return
	}
	dead, holding, bad := 0, 0, map[string]bool{}
	for _, name := range p.f.names() {
		if p.f.nodes[name].fault.Fault != "" {
			dead++
			bad[name] = true
			// It may have been the doing of the target, or of one before it. What is ill but not silent may be held for
			// taken: a process that starts does not know whether its pod worked once.
			given := slices.ContainsFunc(p.f.on(set.info.UID, name), func(d fact.Pod) bool { return d.Revision != w.stable })
			if !p.f.nodes[name].dead() || !w.back && given {
				holding++
			}
		} else if set.bad[w.destination()][name] != "" || p.holds(set, name) {
			holding++
			bad[name] = true
		}
	}
	if p.excused(set, law, w, dead, holding) {
		return
	}
	for _, name := range p.f.names() {
		here := p.f.available(set.info.UID, name)
		if bad[name] || p.besideBad(law, bad, name) || len(here) == 1 && here[0].Revision == w.destination() {
			continue
		}
		p.r.fatal(set, "%s is well and does not have %s two hours later", name, w.destination())
	}
}

// holds reports whether the node waits, such as in a step that has not begun, with a pod that does not
// work: it may count as unavailable.
func (p *play) holds(set *daemons, name string) bool {
	return slices.ContainsFunc(p.f.on(set.info.UID, name), func(d fact.Pod) bool {
		return !d.Ready && set.bad[d.Revision][name] != ""
	})
}

// excused reports whether so much is out of order that the limits may stop everything.
func (p *play) excused(set *daemons, law rules, w way, dead, holding int) bool {
	if !w.back && law.faults == "20%" && 5*dead > len(p.f.nodes) {
		return true
	}
	if !set.readable(w.stable) && slices.ContainsFunc(p.f.names(), func(name string) bool { return len(p.f.on(set.info.UID, name)) == 0 }) {
		return true // who lost its pod before its step waits for one that nobody can make, and counts as unavailable
	}
	most := budget(set, len(p.f.nodes))
	if !w.back && law.most > 0 {
		most = min(most, law.most)
	}
	return holding >= most
}

// besideBad reports whether the node's rack has to wait for others in it.
func (p *play) besideBad(law rules, bad map[string]bool, name string) bool {
	labels := p.f.nodes[name].info.Labels
	return law.rack > 0 && slices.ContainsFunc(p.f.names(), func(o string) bool {
		return bad[o] && p.f.nodes[o].info.Labels["rack"] == labels["rack"]
	})
}

// TestDaemonSetsShareAPace has DaemonSets change under one policy at once: each gets its share of the pace
// all the while, and all together get no more than it.
func TestDaemonSetsShareAPace(t *testing.T) {
	for _, c := range []struct {
		sets, pace int
		apart      time.Duration
	}{{2, 6, 0}, {2, 24, 3 * time.Second}, {3, 6, 0}, {3, 12, time.Second}, {3, 18, 5 * time.Second}} {
		f := newFleet(1)
		p := &play{f: f, r: newReferee(t, f)}
		for i := range 16 {
			p.join(i)
		}
		law := rules{min: 1, max: "5%", faults: "20%", then: v1alpha1.FailureHalt, pace: c.pace}
		for i := range c.sets {
			p.obey(f.addSet(fmt.Sprintf("set-%d", i), "a", intstr.FromInt(8), false), law, "policy-1")
		}
		f.pass(12 * time.Minute) // the first pods come no faster either
		for i := range c.sets {
			f.update(f.sets[types.UID(fmt.Sprintf("set-%d", i))], "b")
			f.pass(c.apart)
		}
		clear(p.r.turns)
		minutes, all := 12*c.sets/c.pace, 0
		f.pass(time.Duration(minutes) * time.Minute)
		for i := range c.sets {
			n := p.r.turns[types.UID(fmt.Sprintf("set-%d", i))]
			if all += n; n < minutes*c.pace/c.sets-3 {
				t.Errorf("%+v: set-%d got %d turns of its share of %d; all got %v", c, i, n, minutes*c.pace/c.sets, p.r.turns)
			}
		}
		if most := minutes*c.pace + c.pace/6 + 1; all > most {
			t.Errorf("%+v: %d turns in %d minutes, %d are allowed", c, all, minutes, most)
		}
	}
}

// What a DaemonSet took from another policy's pace does not put it last in the pace that it shares now.
func TestTurnsAreCountedForEachPolicy(t *testing.T) {
	f := newFleet(1)
	p := &play{f: f, r: newReferee(t, f)}
	for i := range 16 {
		p.join(i)
	}
	law := rules{min: 1, max: "5%", faults: "20%", then: v1alpha1.FailureHalt, pace: 60}
	moves := f.addSet("moves", "a", intstr.FromInt(8), false)
	stays := f.addSet("stays", "a", intstr.FromInt(8), false)
	p.obey(moves, law, "policy-1")
	f.pass(time.Minute)
	for i := range 8 {
		f.update(moves, fmt.Sprintf("v%d", i))
		f.pass(3 * time.Minute)
	}
	law.pace = 6
	p.obey(stays, law, "policy-2")
	p.obey(moves, law, "policy-2")
	f.pass(5 * time.Minute)
	f.update(moves, "b")
	f.update(stays, "b")
	clear(p.r.turns)
	f.pass(2 * time.Minute)
	if n, others := p.r.turns[moves.info.UID], p.r.turns[stays.info.UID]; n < 4 || others < 4 {
		t.Errorf("the one that moved had %d turns, the other %d", n, others)
	}
}
