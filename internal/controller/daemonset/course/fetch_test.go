package course

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// fetchingMachine is what a node does that is asked for images.
type fetchingMachine struct {
	// fetches is how it answers: "" soon.
	fetches string
	// asked is when it was asked, wished since when it is, or could be, for the images of wishedFor: by the API's clock.
	asked, wished time.Time
	wishedFor     string
}

// drawFetch makes up whether nodes of a wave fetch images.
func drawFetch(t *rapid.T) string {
	return rapid.SampledFrom([]string{"", "", ", fetch: true, fetchDeadline: 5s", ", fetch: true, fetchDeadline: 40s"}).Draw(t, "fetch")
}

// drawFetches makes up how a node answers. One that may be ill may also be unable to get the images.
func drawFetches(t *rapid.T, ill bool) string {
	ways := []string{"", "slow", "never", "old"}
	if ill {
		ways = append(ways, "full", "missing")
	}
	return rapid.SampledFrom(ways).Draw(t, "fetches")
}

// fetch asks the node, as the course wants it, and has it answer.
func (w *world) fetch(name string) {
	m, wish := w.nodes[name], w.course.Order(name).Fetch
	d := &m.daemon
	was, asked := *d, d.Fetch.Revision == w.ds.Newest
	switch {
	case wish != standing.Ask && !(wish == standing.Keep && asked):
		m.wished = time.Time{}
	case m.wished.IsZero() || m.wishedFor != w.ds.Newest:
		m.wished, m.wishedFor = w.now, w.ds.Newest
	}
	switch {
	case d.Revision == "":
	case wish == standing.Ask && m.fetches != "old":
		d.Fetch, m.asked = fetch.Report{Revision: w.ds.Newest, At: w.clock()}, w.now
	case wish == standing.NoWish:
		d.Fetch = fetch.Report{}
	case asked && m.fault == "":
		d.Fetch.Reason = m.answer(w.now)
	}
	if was != *d {
		w.course.SetDaemon(name, *d)
	}
}

// answer is what the node says of the images.
func (m *machine) answer(now time.Time) fetch.Reason {
	switch m.fetches {
	case "":
		return fetch.Fetched
	case "slow":
		if now.Sub(m.asked) > 10*time.Second {
			return fetch.Fetched
		}
	case "full":
		return fetch.NoSpace
	case "missing":
		return fetch.NotFound
	}
	return ""
}

// fetchedBefore checks that no daemon is taken away for the target from a node of a wave that fetches before it has
// the images, or was waited for.
func (w *world) fetchedBefore(t *rapid.T, p Permit, step rolloutpolicy.Step) {
	m, wave, target := w.nodes[p.Node], &w.policy.Waves[step.Wave], w.ds.Newest
	if !wave.Fetch || !w.ds.Fetches || p.From == "" || p.To != target || target == w.course.state.stable {
		return
	}
	if w.course.state.stable == "" && !w.course.state.steps {
		return // a new DaemonSet has no steps
	}
	said := m.daemon.Fetch
	has := said.Revision == target && said.Reason.Done()
	waited := !m.wished.IsZero() && m.wishedFor == target && w.now.Sub(m.wished) >= wave.FetchDeadline-2*time.Second
	if !has && (!waited || said.Revision == target && said.Reason != "" && w.now.Sub(m.asked) > Lasting+2*time.Second) {
		t.Fatalf("%+v begins; its node %q says %+v, and it is wished for %s since %s", p, m.fetches, said, m.wishedFor,
			m.wished)
	}
}

// refetch checks that what is known of a node's images is what follows from the facts, and where it is looked for.
func refetch(t *rapid.T, c *Course, n *node) {
	kept := n.change.fetch
	now := c.fetching(n)
	n.change.fetch = kept
	if now != n.fetched {
		t.Fatalf("%s is known to be %+v with images, and would be %+v; step %+v, gate %+v; open %v", n.Name, n.fetched, now, n.step, c.gate, c.state.open)
	}
	if s := c.queue.Steps[n.step]; s != nil && s.Awaited.Has(&n.Member) != (n.view.State == standing.Awaiting) {
		t.Fatalf("%s awaits images: %v", n.Name, n.view.State == standing.Awaiting)
	}
}

// fetchingWorld is a world of one rack of so many nodes that goes from v1 to v2, and fetches before.
func fetchingWorld(t *testing.T, nodes int, rules string) *world {
	t.Helper()
	w := newWorld()
	w.addFleet(1, 1, nodes, "v1")
	ds := daemonSet("v1")
	ds.Fetches = true
	w.start(policy(t, rules), ds)
	return w
}

// A canary that cannot fetch has shown nothing of the revision, whoever is to blame: it asks, says for which node it
// does and what else hinders the next step, and goes on by itself when that node can.
func TestACanaryThatCannotFetchAsks(t *testing.T) {
	for faults, also := range map[string]string{
		"1": "", "0": "; but nothing new begins: 1 of 10 nodes are out of order, more than 0",
	} {
		w := fetchingWorld(t, 10, "waves: [{name: canary, count: 1, fetch: true}]\nnodeFaults: {max: "+faults+"}")
		canary := ""
		for name := range w.nodes {
			if w.policy.StepName(w.course.nodes[name].step) == "canary" {
				canary = name
			}
		}
		w.nodes[canary].fetches = "full"
		w.update("v2")
		w.pass(20 * time.Second)
		w.expect(t, v1alpha1.PhaseProgressing, "images are awaited on 1 node")
		w.pass(time.Hour)
		w.expect(t, v1alpha1.PhaseWaitingForApproval, "no node of step canary can take the change: "+canary+
			" (it cannot fetch the images of revision v2); it shows nothing of the revision, and goes on by itself when "+
			"one of them can; the next step begins when it is approved"+also)
		if _, message := w.course.Phase(); also == "" && strings.Contains(message, "out of order") {
			t.Errorf("with as many faults as may be it says %q", message)
		}
		if v, _ := w.course.Verdict(canary); v != standing.NoRoom || w.on("v2") > 0 {
			t.Errorf("the canary is %s, and %d nodes have v2", v, w.on("v2"))
		}
		w.nodes[canary].fetches = ""
		w.pass(10 * time.Minute)
		w.expect(t, v1alpha1.PhaseComplete, "10 of 10")
	}
}

// The status says what hinders fetching while a change is under way, and that only: also that a template has more images
// than nodes are asked for.
func TestWhatHindersFetching(t *testing.T) {
	const many = "the template has 203 images, and nodes fetch the first 200; its pods pull the others"
	w := fetchingWorld(t, 4, "waves: [{name: canary, count: 1, fetch: true}]")
	says := func(when, want string) {
		t.Helper()
		got := ""
		if f := w.course.Status().Fetch; f != nil {
			got = f.Message
		}
		if got != want {
			t.Errorf("%s it says %q, want %q", when, got, want)
		}
	}
	w.ds.MoreImages = 3
	w.tellRules()
	says("before the change", "")
	w.update("v2")
	says("at its beginning", "the agents of 1 node do not say that they can fetch images; each is waited for until its deadline; "+many)
	w.act(0)
	says("when the node is asked", many)
	w.pass(time.Hour)
	w.expect(t, v1alpha1.PhaseComplete, "4 of 4")
	says("when all have it", "")
	ds := daemonSet("v1")
	ds.MoreImages = 3
	w = newWorld()
	w.addFleet(1, 1, 4, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 1, fetch: true}]"), ds)
	w.update("v2")
	says("where nobody asks", v1alpha1.NoFetch)
}

// A pause lets who was asked go on, and asks nobody else; no patience ends meanwhile.
func TestAPauseWhileNodesFetch(t *testing.T) {
	w := fetchingWorld(t, 2, "waves: [{name: all, nodes: {}, maxUnavailable: 2, fetch: true, fetchDeadline: 5m}]")
	asked, late := "z0-r0-00", "z0-r0-01"
	w.nodes[asked].fetches, w.nodes[late].fetches = "slow", "old" // nobody asks the second before it is upgraded
	w.update("v2")
	w.pass(2 * time.Second)
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Paused: true})
	w.nodes[late].fetches = "slow"
	w.pass(time.Hour)
	if said := w.nodes[asked].daemon.Fetch; said.Revision != "v2" || said.Reason != fetch.Fetched {
		t.Errorf("who was asked before the pause says %+v", said)
	}
	if said := w.nodes[late].daemon.Fetch; said != (fetch.Report{}) || w.on("v2") > 0 {
		t.Errorf("one is asked during the pause: %+v, and %d nodes have v2", said, w.on("v2"))
	}
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{})
	w.pass(5 * time.Second)
	if w.nodes[late].daemon.Fetch.Revision != "v2" || w.on("v2") > 0 {
		t.Errorf("after the pause it says %+v, and %d nodes have v2 before all have the images",
			w.nodes[late].daemon.Fetch, w.on("v2"))
	}
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseComplete, "2 of 2")
}

// An abort has nobody fetch any more, and takes no daemon away: no node was changed yet. Its failures are forgotten with
// the next template.
func TestAnAbortWhileNodesFetch(t *testing.T) {
	w := fetchingWorld(t, 4, "waves: [{name: all, nodes: {}, fetch: true}]\nfailure: {min: 4, max: 4}")
	for i, name := range w.names() {
		w.nodes[name].fetches = []string{"never", "slow", "missing", "full"}[i]
	}
	w.check = func(p Permit) { t.Errorf("%+v begins", p) }
	w.update("v2")
	w.pass(time.Minute)
	if v, why := w.course.Verdict("z0-r0-02"); v != standing.FailedRevision {
		t.Errorf("one without the image is %s: %s", v, why)
	}
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Abort: &v1alpha1.Abort{Revision: "v2"}})
	w.pass(time.Second)
	w.expect(t, v1alpha1.PhaseRolledBack, "revision v2 somebody aborted it")
	for _, name := range w.names() {
		if said := w.nodes[name].daemon.Fetch; said != (fetch.Report{}) {
			t.Errorf("%s still fetches: %+v", name, said)
		}
		if v, why := w.course.Verdict(name); v != standing.Current {
			t.Errorf("%s is %s: %s", name, v, why)
		}
	}
	w.pass(time.Hour)
	w.check = nil
	for _, name := range w.names() {
		w.nodes[name].fetches = ""
	}
	w.update("v3")
	w.pass(time.Hour)
	w.expect(t, v1alpha1.PhaseComplete, "4 of 4")
}

// Outside of windows nodes are asked, and nothing is taken away; when one opens all have the images.
func TestNodesFetchOutsideOfWindows(t *testing.T) {
	w := fetchingWorld(t, 3, "waves: [{name: all, nodes: {}, fetch: true}]\nwindows: [{from: \"12:00\", to: \"13:00\"}]")
	w.check = func(p Permit) { t.Errorf("%+v begins", p) }
	w.update("v2")
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseOutsideWindow, "")
	for _, name := range w.names() {
		if said := w.nodes[name].daemon.Fetch; said.Revision != "v2" || said.Reason != fetch.Fetched {
			t.Errorf("%s says %+v", name, said)
		}
	}
	w.pass(90 * time.Minute)
	w.check = nil
	w.pass(time.Hour)
	w.expect(t, v1alpha1.PhaseComplete, "3 of 3")
}

// With another content of the same template there is nothing to fetch.
func TestAnotherContentFetchesNothing(t *testing.T) {
	w := fetchingWorld(t, 3, "waves: [{name: all, nodes: {}, fetch: true}]")
	asked := false
	w.check = func(Permit) {
		for _, m := range w.nodes {
			asked = asked || m.daemon.Fetch != (fetch.Report{})
		}
	}
	w.update("v1." + strings.Repeat("a", 24))
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseComplete, "3 of 3")
	if asked {
		t.Error("a node was asked for images that it has")
	}
}

// A policy that is edited while nodes fetch asks nobody again, and gives nobody more time.
func TestAPolicyThatIsEditedWhileNodesFetch(t *testing.T) {
	const rules = "waves: [{name: all, nodes: {}, maxUnavailable: 2, fetch: true, fetchDeadline: 5m}]"
	w := fetchingWorld(t, 2, rules)
	soon, never := "z0-r0-00", "z0-r0-01"
	w.nodes[never].fetches = "never"
	w.update("v2")
	w.pass(3 * time.Minute)
	was := w.nodes[soon].daemon.Fetch
	w.policy = policy(t, rules+"\nfailure: {min: 2}")
	w.course.SetPolicy(w.policy, Followed, "")
	w.pass(time.Minute)
	if now := w.nodes[soon].daemon.Fetch; now != was || now.Reason != fetch.Fetched || w.on("v2") > 0 {
		t.Errorf("it said %+v, and says %+v; %d nodes have v2", was, now, w.on("v2"))
	}
	w.pass(2 * time.Minute)
	w.expect(t, v1alpha1.PhaseComplete, "2 of 2")
}
