package journal

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/internal/node/peer"
)

func node(name, pods string, version uint64) *peer.Node {
	return &peer.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: strconv.FormatUint(version, 10)}, PodCIDRs: []string{pods}}
}

// read is a line of a watch as a client reads it.
func read(t *rapid.T, line []byte) (watch.EventType, peer.Node) {
	var e struct {
		Type   watch.EventType
		Object peer.Node
	}
	if err := json.Unmarshal(line, &e); err != nil || line[len(line)-1] != '\n' {
		t.Fatalf("%q is no line of a watch: %v", line, err)
	}
	return e.Type, e.Object
}

// client keeps what it was told; it may be cut off, and goes on from where it was.
type client struct {
	nodes   map[string]string
	version uint64
}

func (c *client) list(j *Journal) {
	c.nodes, c.version = map[string]string{}, j.Version()
	for _, n := range j.Nodes() {
		var p peer.Node
		if err := json.Unmarshal(n.Object, &p); err != nil {
			panic(err)
		}
		c.nodes[p.Name] = fmt.Sprint(p.PodCIDRs)
	}
}

// catchUp reads at most limit changes, as somebody who is cut off in between, and says
// whether they were still known.
func (c *client) catchUp(t *rapid.T, j *Journal, limit int) bool {
	events, known := j.Since(c.version)
	for i, e := range events {
		if i == limit {
			return known
		}
		kind, n := read(t, e.Line)
		_, have := c.nodes[n.Name]
		if have == (kind == watch.Added) {
			t.Fatalf("%s of %s, of which the client knows: %v", kind, n.Name, have)
		}
		if kind == watch.Deleted {
			delete(c.nodes, n.Name)
		} else {
			c.nodes[n.Name] = fmt.Sprint(n.PodCIDRs)
		}
		if c.version >= e.Version || n.ResourceVersion != strconv.FormatUint(e.Version, 10) {
			t.Fatalf("an event of version %d at %d, with the object's %s", e.Version, c.version, n.ResourceVersion)
		}
		c.version = e.Version
	}
	if known {
		c.version = max(c.version, j.Version())
	}
	return known
}

// Whatever happens, and wherever a client was cut off: it ends up knowing what there is,
// or is told that it must list again, and that only when enough has changed.
func TestClientsKnowWhatThereIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keep := rapid.IntRange(1, 6).Draw(t, "keep")
		j := New(keep)
		truth := map[string]*peer.Node{}
		version := uint64(10)
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		replace := func() {
			must(j.Replace(slices.Collect(maps.Values(truth)), version))
		}
		replace()
		c := &client{}
		c.list(j)
		changes := 0 // that the client missed
		replaced := false
		names := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		networks := rapid.SampledFrom([]string{"1", "2", "3"})
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			version += rapid.Uint64Range(1, 3).Draw(t, "pause")
			name, network := names.Draw(t, "name"), networks.Draw(t, "network")
			old := truth[name]
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1:
				truth[name] = node(name, network, version)
				news, err := j.Put(truth[name])
				must(err)
				if want := old == nil || old.PodCIDRs[0] != network; news != want {
					t.Fatalf("put of %s as %s after %v: news %v", name, network, old, news)
				} else if want {
					changes++
				}
			case 2:
				delete(truth, name)
				news, err := j.Remove(node(name, network, version))
				must(err)
				if news != (old != nil) {
					t.Fatalf("removal of %s, there before %v: news %v", name, old != nil, news)
				} else if news {
					changes++
				}
			case 3:
				j.Reach(version)
			case 4: // the journal's own watch broke
				if rapid.Bool().Draw(t, "differs") {
					truth[name] = node(name, network, version)
					replaced = replaced || old == nil || old.PodCIDRs[0] != network
				}
				replace()
			case 5:
				limit := rapid.IntRange(0, 6).Draw(t, "limit")
				if !c.catchUp(t, j, limit) {
					if changes < keep && !replaced {
						t.Fatalf("%d changes are too many for a journal of %d", changes, keep)
					}
					c.list(j)
				}
				if limit == 6 || c.version == j.Version() {
					changes = 0
				}
				replaced = replaced && c.version < j.Version()
			}
		}
		for !c.catchUp(t, j, 1000) {
			c.list(j)
		}
		want := map[string]string{}
		for name, n := range truth {
			want[name] = fmt.Sprint(n.PodCIDRs)
		}
		if !maps.Equal(c.nodes, want) {
			t.Fatalf("the client knows %v, there is %v", c.nodes, want)
		}
		if len(j.events) > 2*keep {
			t.Fatalf("%d events are kept by a journal of %d", len(j.events), keep)
		}
	})
}

// What was given away does not change under the reader.
func TestNodesGivenAwayStay(t *testing.T) {
	j := New(4)
	if err := j.Replace([]*peer.Node{node("b", "2", 5)}, 5); err != nil {
		t.Fatal(err)
	}
	before := j.Nodes()
	for i, name := range []string{"a", "b", "c"} {
		if _, err := j.Put(node(name, "9", uint64(6+i))); err != nil {
			t.Fatal(err)
		}
	}
	if len(before) != 1 || before[0].name != "b" || string(before[0].Object) != string(mustEncode(t, node("b", "2", 5)).Object) {
		t.Errorf("a list that was given away became %v", before)
	}
	names := ""
	for _, n := range j.Nodes() {
		names += n.name
	}
	if names != "abc" {
		t.Errorf("the nodes are in the order %s", names)
	}
}

func TestNonsenseChangesNothing(t *testing.T) {
	j := New(4)
	if _, err := j.Put(&peer.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "x"}}); err == nil || len(j.Nodes()) != 0 {
		t.Errorf("a node without a version was taken: %v", err)
	}
	if _, err := j.Remove(&peer.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}); err == nil {
		t.Error("a removal without a version was taken")
	}
}

func mustEncode(t *testing.T, n *peer.Node) *Node {
	t.Helper()
	out, err := encode(n)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
