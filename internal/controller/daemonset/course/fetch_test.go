package course

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/fetch"
	"github.com/everynode/everynode/internal/rolloutpolicy"
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
	if !has && (!waited || said.Revision == target && said.Reason != "" && w.now.Sub(m.asked) > lasting+2*time.Second) {
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
		t.Fatalf("%s is known to be %+v with images, and would be %+v; step %+v, gate %+v; open %v", n.name, n.fetched, now, n.step, c.gate, c.state.open)
	}
	if s := c.steps[n.step]; s != nil && s.awaited.Has(n) != (n.view.state == standing.Awaiting) {
		t.Fatalf("%s awaits images: %v", n.name, n.view.state == standing.Awaiting)
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
