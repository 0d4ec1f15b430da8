package course

import (
	"time"

	"pgregory.net/rapid"

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
