package plan

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/change/history"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/change/survey/surveytest"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
	podstate "github.com/everynode/everynode/internal/objects/pod"
)

// TestPlanIsWhatHappens plans a change of a random DaemonSet at a random moment, has it applied, and compares: what was
// foretold is what the controller then does, though it hears of everything late and nodes take other times.
//
// How many nodes are given a revision before it is known to have failed depends on time, so a change that cannot be
// placed everywhere comes with a policy that no failure stops. Whether a daemon that has failed comes back before its node's
// turn comes to have none depends on time too, so placement does not change where one fails.
func TestPlanIsWhatHappens(t *testing.T) {
	for _, kind := range []string{"another template", "other placement", "nothing", "variants", "content"} {
		t.Run(kind, func(outer *testing.T) {
			if kind == "content" { // a case of it takes as long as ten of another kind
				fewer(outer, 5)
			}
			rapid.Check(outer, func(t *rapid.T) {
				changes := map[string][]string{
					"another template": {"image", "image by digest", "the first image", "memory", "image and no policy"},
					"other placement":  {"zone", "nowhere", "everywhere", "image and zone"},
					"nothing":          {"nothing"},
					"variants":         {"nothing", "nothing", "nothing", "image", "image and no policy"},
					"content":          {"nothing", "nothing", "nothing", "image", "the first image"},
				}[kind]
				change := rapid.SampledFrom(changes).Draw(t, "change")
				varied := kind == "variants"
				l := drawLab(outer, t, kind, change)
				l.behave()
				old, new := l.ds, l.ds.DeepCopy()
				edit(new, change)
				if !apiequality.Semantic.DeepEqual(old.Spec, new.Spec) {
					new.Generation++
				}
				objects := l.Objects
				if varied {
					objects.Stored, objects.Varied = objects.Variants, true
					objects.Variants = l.drawVariants("then")
					l.show("before", objects.Stored)
					l.show("then", objects.Variants)
				}
				if kind == "content" {
					l.says = texts{}
					for _, ref := range l.texts.refs() {
						l.says[ref] = rapid.SampledFrom([]string{l.texts[ref], "a", "b", "c", "d"}).Draw(t, "the file says")
					}
					objects = l.planned(objects, new)
				}
				p, err := foretell(survey.New(objects), old, new)
				if err != nil {
					t.Fatal(err)
				}
				var text strings.Builder
				p.out.Write(&text)
				t.Logf("%s\n%s", change, text.String())
				l.compareVariants(p, compare(t, l, p, new, objects.Variants))
			})
		})
	}
}

// fewer has a test draw so many times fewer cases.
func fewer(t *testing.T, times int) {
	checks := flag.Lookup("rapid.checks")
	was := checks.Value.String()
	n, err := strconv.Atoi(was)
	if err == nil {
		err = checks.Value.Set(strconv.Itoa(max(n/times, 1)))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = checks.Value.Set(was) })
}

func edit(ds *appsv1.DaemonSet, change string) {
	spec := &ds.Spec.Template.Spec
	c := &spec.Containers[0]
	switch change {
	case "image":
		c.Image = "example.com/agent:3"
	case "image by digest":
		c.Image = "example.com/agent@sha256:" + strings.Repeat("3", 64)
	case "the first image":
		c.Image = "example.com/agent:1"
	case "memory":
		c.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("400Mi")}
	case "image and no policy":
		c.Image = "example.com/agent:3"
		delete(ds.Labels, "tier")
	case "image and zone":
		c.Image = "example.com/agent:3"
		spec.NodeSelector = map[string]string{"zone": "a"}
	case "zone":
		spec.NodeSelector = map[string]string{"zone": "a"}
	case "nowhere":
		spec.NodeSelector = map[string]string{"zone": "A"}
	case "everywhere":
		spec.NodeSelector = nil
		spec.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
	}
}

func drawPolicy(t *rapid.T, lenient bool) string {
	one := func(what string, of ...string) string { return rapid.SampledFrom(of).Draw(t, what) }
	if one("policy", "yes", "yes", "yes", "no") == "no" {
		return ""
	}
	text := "selector: {matchLabels: {tier: agent}}\n" + one("waves", "",
		"waves: [{name: canary, nodes: {matchLabels: {canary: \"yes\"}}, soak: 10m, approval: Manual}, {name: zones, each: zone}]\n",
		"waves: [{name: canary, count: 1, soak: 1m}, {name: zones, each: zone, maxUnavailable: 50%, soak: 30s}]\n",
		"waves: [{name: some, percent: 40, spreadBy: zone, approval: Manual}]\n",
		"waves: [{name: all, nodes: {}, ramp: {}, soak: 20s}]\n",
		"waves: [{name: racks, each: rack, maxUnavailable: 1}]\n") +
		one("domains", "", "domains: [{key: rack, maxUnavailable: 1}]\n") +
		one("pace", "", "", "pace: {nodesPerMinute: 6}\n") +
		one("windows", "", "", "windows: [{from: \"22:00\", to: \"23:00\"}]\n", "windows: [{from: \"09:00\", to: \"16:00\"}]\n")
	if lenient {
		return text + "failure: {max: 100%, min: 1000}\nnodeFaults: {max: 100%}\n"
	}
	return text + one("failure", "", "failure: {then: Rollback}\n", "failure: {max: 100%, min: 1000}\n") +
		one("node faults", "", "nodeFaults: {max: 100%}\n")
}

// drawLab makes a cluster, and lets things happen there.
func drawLab(outer *testing.T, t *rapid.T, kind, change string) *lab {
	l := newLab(outer, t)
	varied, read := kind == "variants", kind == "content"
	lenient, mayFail := change == "memory" || varied, kind != "other placement"
	chance := func(of int, what string) bool { return rapid.IntRange(1, of).Draw(t, what) == of }
	for i := range rapid.IntRange(3, 9).Draw(t, "nodes") {
		name := fmt.Sprintf("node-%d", i)
		edits := []func(*corev1.Node){
			surveytest.Label("zone", []string{"a", "b"}[i%2]), surveytest.Label("rack", fmt.Sprintf("r%d", i%3)),
			surveytest.Label("size", []string{"s", "l", "none"}[i%3]),
		}
		if i == 1 || chance(8, "canary") {
			edits = append(edits, surveytest.Label("canary", "yes"))
		}
		if chance(10, "silent") {
			edits = append(edits, surveytest.Silent)
		}
		if !chance(6, "fetches no images") {
			edits = append(edits, surveytest.Label(fetch.Name, "true"))
		}
		if chance(10, "tainted") {
			edits = append(edits, surveytest.Tainted)
		}
		if read && !chance(4, "no live content") {
			edits = append(edits, surveytest.Label(content.LiveName, "true"))
		}
		l.Node(name, edits...)
		if chance(5, "full") {
			l.Other(name)
		}
	}
	l.ds, _ = l.DaemonSet("log-agent", "example.com/agent:1")
	strategy := &l.ds.Spec.UpdateStrategy
	limit := intstr.Parse(rapid.SampledFrom([]string{"1", "2", "50%"}).Draw(t, "limit"))
	switch rapid.IntRange(1, 12).Draw(t, "strategy") {
	case 1:
		*strategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
	case 2, 3:
		none := intstr.FromInt32(0)
		strategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &none, MaxSurge: &limit}
	default:
		strategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &limit}
	}
	l.ds.Spec.MinReadySeconds = int32(rapid.IntRange(0, 1).Draw(t, "min ready")) * 3
	policy := drawPolicy(t, lenient)
	if read {
		apply := rapid.SampledFrom([]string{"Restart", "Live"}).Draw(t, "apply")
		secrets := rapid.SampledFrom([]string{"Referenced", "None"}).Draw(t, "Secrets are content")
		l.secrets = secrets == "Referenced"
		policy = cmp.Or(policy, "selector: {matchLabels: {tier: agent}}\n") + "content: {settle: 0s, apply: " + apply + ", secrets: " + secrets + "}\n"
	}
	policy = l.drawImages(policy)
	if policy != "" {
		l.Policy("careful", policy)
	}
	second := !chance(5, "no second revision")
	// The pod of a template that goes is taken down also where none of the next one can be made. How many nodes that are
	// before others begin is a matter of time.
	l.fails = varied && change == "nothing" && !second
	if varied {
		l.base()
		l.restart()
		l.vary(l.drawVariants("first"))
		l.show("first", l.Objects.Variants)
	}
	if read {
		l.withContent("a")
	}
	l.restart()
	l.finish()
	if second {
		l.applySecond(lenient, mayFail)
	}
	for range rapid.IntRange(0, 4).Draw(t, "acts") {
		l.run(time.Duration(rapid.SampledFrom([]int{1, 5, 20, 60, 700, 40000}).Draw(t, "seconds")) * time.Second)
		l.somebodyActs()
		if l.pins && chance(3, "tags move") {
			l.moved++
		}
		if read && rapid.Bool().Draw(t, "the author writes") {
			l.somebodyWrites(!lenient && chance(3, "the text is bad"))
		}
		if varied && rapid.Bool().Draw(t, "a node becomes another") {
			l.relabel()
		}
		if varied && chance(3, "somebody writes variants") {
			l.vary(l.drawVariants("meanwhile"))
			l.show("meanwhile", l.Objects.Variants)
		}
	}
	l.hush()
	// Which steps had begun under a policy that is gone only a controller knows that was there. A plan reads objects.
	if chance(2, "the controller starts again") || len(l.Objects.Policies) == 0 {
		l.restart()
		l.hush()
	}
	return l
}

// applySecond applies another template, which may be bad.
func (l *lab) applySecond(lenient, mayFail bool) {
	t := l.t
	chance := func(of int, what string) bool { return rapid.IntRange(1, of).Draw(t, what) == of }
	second := l.ds.DeepCopy()
	second.Generation++
	second.Spec.Template.Spec.Containers[0].Image = "example.com/agent:2"
	if chance(4, "in one zone") {
		second.Spec.Template.Spec.NodeSelector = map[string]string{"zone": "b"}
	}
	l.apply(second)
	bad := map[string]bool{}
	if !lenient && mayFail && chance(3, "the second revision is bad") {
		for _, n := range l.Objects.Nodes {
			bad[n.Name] = chance(2, "it fails on "+n.Name)
		}
	}
	l.bad[history.HashOf(l.revision())] = bad
	l.missing[history.HashOf(l.revision())] = len(bad) > 0 && rapid.Bool().Draw(t, "its image is missing there")
}

// somebodyActs does what people do to a rollout.
func (l *lab) somebodyActs() {
	act := rapid.SampledFrom([]string{"approve", "approve", "approve", "pause", "resume", "abort", "no policy"}).Draw(l.t, "somebody")
	if act == "no policy" {
		for _, p := range l.Objects.Policies {
			l.Objects.Policies = nil
			l.book.Step(rollouts.Policy{Object: p, Gone: true})
		}
		return
	}
	r := l.rollout()
	if r == nil || r.Status.TargetDigest == "" {
		return
	}
	next := r.DeepCopy()
	next.Generation++
	switch st := &r.Status; act {
	case "approve":
		if st.Step == "" {
			return
		}
		next.Spec.Approved = &v1alpha1.StepApproval{Revision: st.TargetRevision, Digest: st.TargetDigest, Step: st.Step, Change: st.Change}
	case "pause":
		next.Spec.Paused = true
	case "resume":
		next.Spec.Paused = false
	case "abort":
		next.Spec.Abort = &v1alpha1.Abort{Revision: st.TargetRevision, Digest: st.TargetDigest}
	}
	l.write(next)
}

// compare has the DaemonSet applied, and compares what happens with what was foretold.
func compare(t *rapid.T, l *lab, p *planner, new *appsv1.DaemonSet, vary []*v1alpha1.DaemonSetVariant) (shaky map[string]bool) {
	same := new.Generation == l.ds.Generation && maps.Equal(new.Labels, l.ds.Labels) &&
		(maps.Equal(l.says, l.texts) || l.direct)
	new.Status = l.ds.Status
	l.done, l.asked = nil, nil
	clear(l.soaked)
	clear(l.resized)
	clear(l.withheld)
	clear(l.away)
	clear(l.awaited)
	began, before := l.Objects.Now, l.rollout()
	// A daemon that does not work is replaced at once, by whatever its node is to have then: in which step that is can be
	// a matter of seconds. Where a pace makes it wait for its turn, it may be well before, and have to wait for others then.
	shaky = map[string]bool{}
	slow, unbound := map[string]bool{}, map[string]bool{}
	paced := slices.ContainsFunc(l.Objects.Policies, func(p *v1alpha1.RolloutPolicy) bool { return p.Spec.Pace.NodesPerMinute != nil })
	for _, n := range l.Objects.Nodes {
		o := l.newestPod(n.Name)
		shaky[n.Name] = o == nil || !podstate.IsReady(o) || resizesNow(o) || !shows(o)
		// Whether it is bound before it is deleted, and stays then, is a matter of seconds.
		unbound[n.Name] = o != nil && o.Spec.NodeName == "" && !l.works(n.Name)
		if shaky[n.Name] && paced {
			slow[n.Name] = true
		}
	}
	l.vary(vary)
	for _, ref := range l.says.refs() {
		if l.says[ref] != l.texts[ref] {
			l.author(ref, l.says[ref])
		}
	}
	l.apply(new)
	if new.Labels["tier"] == "" || l.refused {
		l.restart() // see drawLab; how long a pod that was refused is not tried again only this controller knows
	}
	newest := l.newest()
	l.decide()
	st, guided := l.matrix.Rollout(l.ds.UID)
	backwards := guided && isBack(&st)
	if len(l.done) > 0 {
		backwards = l.done[0].back
	}
	l.finish()
	l.comparePins(p, before)
	if slices.ContainsFunc(p.unanswered, func(node string) bool { return l.withheld[node] }) {
		return l.allShaky() // the plan took for granted that there is room, and there is none
	}
	returns := slices.ContainsFunc(l.done, deed.returns)
	crowds := func(name string) bool { return (slow[name] || returns) && len(p.lack[name]) > 0 }
	switch {
	case !stands(&p.status):
	case slices.ContainsFunc(names(shaky), crowds):
		// It uses up the limit before others of its step come, which then never do, or after them. That is so too where
		// nodes leave a revision that has failed while their own step begins.
		l.compareLeast(p, slow)
		return l.allShaky()
	case l.hadSurplus():
		l.compareNumbers(p, newest, backwards)
		return l.allShaky()
	}
	moved, order, first := l.moves(newest, backwards, shaky)

	touched, acts := map[string]bool{}, map[string]bool{}
	for _, d := range l.done {
		t.Logf("%+v", d)
		touched[d.node] = true
		if !d.asked {
			acts[d.node] = true
		}
	}
	maps.DeleteFunc(touched, func(name string, _ bool) bool { return slow[name] })
	maps.DeleteFunc(p.touched, func(name string, _ bool) bool { return slow[name] })
	if !maps.Equal(touched, p.touched) {
		t.Errorf("pods were made or deleted on %v, foretold on %v", names(touched), names(p.touched))
	}
	// Whether a daemon that does not work waits longer before it is tried again than people before they answer is a matter
	// of seconds too.
	seldom := func(name string, _ bool) bool { return shaky[name] && len(l.asked) > 0 }
	maps.DeleteFunc(acts, seldom)
	maps.DeleteFunc(p.acts, seldom)
	p.out.acts = len(p.acts) > 0
	if changes := len(acts) > 0 || !same; p.out.Changes() != changes {
		t.Errorf("that something changes was %v, foretold %v", changes, p.out.Changes())
	}
	if !slices.Equal(l.asked, p.asked) {
		t.Errorf("people were asked for %q, foretold %q", l.asked, p.asked)
	}
	foretold := map[string]string{}
	var steps []string
	for _, s := range p.steps {
		for _, node := range s.nodes {
			if !shaky[node] {
				foretold[node] = s.name
			}
		}
		if slices.ContainsFunc(s.nodes, func(node string) bool { return !shaky[node] }) {
			steps = append(steps, s.name)
		}
	}
	if !maps.Equal(moved, foretold) {
		t.Errorf("nodes changed in steps %v, foretold %v", moved, foretold)
	}
	// With variants also what a daemon is replaced by, or resized to, is a matter of seconds then.
	blurred := len(l.Objects.Variants)+len(p.survey.Stored) > 0 && slices.Contains(slices.Collect(maps.Values(shaky)), true)
	if blurred {
		slices.Sort(order) // a step begins for the plan with a node whose own time is not compared
		slices.Sort(steps)
	}
	if !slices.Equal(order, steps) {
		t.Errorf("the steps were %q, foretold %q", order, steps)
	}
	l.compareFetches(p, moved, shaky)
	for i, s := range p.steps {
		if s.name != all && !blurred && l.soaked[s.name] != (s.soak > 0) {
			t.Errorf("that step %s soaked was %v, foretold %s", s.name, l.soaked[s.name], s.soak)
		}
		switch window, waits := strings.CutPrefix(s.from, "from "); {
		case i > 0, blurred:
		case waits && !slices.ContainsFunc([]time.Duration{0, patience(p, s)}, func(d time.Duration) bool {
			return first.Add(-d).UTC().Format(minute) == window
		}):
			t.Errorf("the first step began at %s, foretold from %s", first, window)
		case s.from == "now" && first.Sub(began) > time.Minute+patience(p, s):
			t.Errorf("the first step began at %s, which was not now, %s", first, began)
		}
	}
	has := p.newest()
	for _, n := range l.Objects.Nodes {
		is, room := "", true
		if o := l.newestPod(n.Name); o != nil {
			is, room = l.revisionOf(o.UID), o.Spec.NodeName != ""
		}
		if slow[n.Name] || unbound[n.Name] {
			continue
		}
		if o, there := has[n.Name]; ofWhich(o.Revision, newest) != ofWhich(is, newest) || there && room != o.Bound {
			t.Errorf("%s has revision %q, room %v; foretold %q, %v", n.Name, is, room, o.Revision, o.Bound)
		}
		if given := l.isGiven(n.Name); len(l.texts) > 0 && !shaky[n.Name] && given == has[n.Name].Pointed.IsZero() {
			t.Errorf("that %s was given content as it runs was %v, foretold %v", n.Name, given, !given)
		}
	}
	if t.Failed() {
		if r := l.rollout(); r != nil {
			t.Logf("the rollout: %s %s\n%+v", r.Status.Phase, r.Status.Message, r)
		}
	}
	return shaky
}

// minute is how a plan writes a time.
const minute = "Mon 2006-01-02 15:04 UTC"

// returns reports whether a node leaves a revision that has failed before its own step has begun.
func (d deed) returns() bool {
	return d.deleted && d.reason == action.ReasonTurn && !d.wanted && !d.back
}

func (l *lab) allShaky() map[string]bool {
	shaky := map[string]bool{}
	for _, n := range l.Objects.Nodes {
		shaky[n.Name] = true
	}
	return shaky
}

// compareLeast compares that at least on the nodes foretold, but on slow ones, something happened.
func (l *lab) compareLeast(p *planner, slow map[string]bool) {
	for name := range p.touched {
		if !slow[name] && !slices.ContainsFunc(l.done, func(d deed) bool { return d.node == name }) {
			l.t.Errorf("nothing happened on %s; foretold on %v", name, names(p.touched))
		}
	}
}

// hadSurplus reports whether a pod was deleted since there was an older one. Until it is gone, which is a matter of
// seconds, its node uses up the limit, and others of its step wait.
func (l *lab) hadSurplus() bool {
	return slices.ContainsFunc(l.done, func(d deed) bool { return d.deleted && d.reason == action.ReasonDuplicate })
}

// stands reports whether a rollout that has come to rest has not begun with all nodes of its step.
func stands(st *v1alpha1.DaemonSetRolloutStatus) bool {
	return st.Phase == v1alpha1.PhaseProgressing && slices.ContainsFunc(st.Steps, func(s v1alpha1.StepStatus) bool {
		return s.Name == st.Step && s.Done+s.Failed < s.Nodes
	})
}

// compareNumbers compares how many nodes of each step were changed, and how many of them have room, where it is a matter
// of seconds which ones come before the limit is used up for good.
func (l *lab) compareNumbers(p *planner, newest string, backwards bool) {
	moved, order, _ := l.moves(newest, backwards, nil)
	is, foretold := map[string]int{}, map[string]int{}
	for _, step := range moved {
		is[step]++
	}
	var steps []string
	for _, s := range p.steps {
		foretold[s.name] = len(s.nodes)
		steps = append(steps, s.name)
	}
	has := p.newest()
	for _, n := range l.Objects.Nodes {
		if o := l.newestPod(n.Name); o != nil && l.revisionOf(o.UID) == newest {
			is[fmt.Sprintf("room %v", o.Spec.NodeName != "")]++
		}
		if o := has[n.Name]; o.Revision == newest {
			foretold[fmt.Sprintf("room %v", o.Bound)]++
		}
	}
	if !maps.Equal(is, foretold) || !slices.Equal(order, steps) {
		l.t.Errorf("so many nodes changed: %v in steps %q; foretold %v, %q", is, order, foretold, steps)
	}
	st, _ := l.matrix.Rollout(l.ds.UID)
	if !stands(&st) || !slices.Equal(l.asked, p.asked) {
		l.t.Errorf("it is %s and asked for %q, foretold %s and %q", st.Phase, l.asked, p.status.Phase, p.asked)
	}
}

// moves gives the step of each node that was given the newest revision, or lost its daemon for it, and the steps in the
// order in which they began, but of some nodes, and when the first node moved.
func (l *lab) moves(newest string, backwards bool, but map[string]bool) (moved map[string]string, order []string, first time.Time) {
	moved = map[string]string{}
	turns := []action.Reason{"", action.ReasonTurn, action.ReasonOutdated, action.ReasonOutdatedUnavailable}
	for _, d := range l.done {
		replaces := d.deleted && slices.Contains(turns, d.reason)
		forward := d.revision == newest && !d.deleted || replaces && d.revision != newest && d.wanted
		if d.back {
			forward = backwards && (!d.deleted || replaces)
		}
		if _, already := moved[d.node]; already || !forward {
			continue
		}
		if first.IsZero() {
			first = d.at
		}
		if but[d.node] {
			continue
		}
		moved[d.node] = d.step
		if !slices.Contains(order, d.step) {
			order = append(order, d.step)
		}
	}
	return moved, order, first
}

// ofWhich is the template of a revision, or the newest revision with its variants. By which others a pod is called that
// nobody wants does not matter.
func ofWhich(revision, newest string) string {
	if revision == newest {
		return revision
	}
	return content.TemplateOf(revision)
}

func names(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }
