// Package journal keeps what nodes are told of each other, and what of it changed last,
// each in the form in which it is sent. However many ask, nothing is encoded twice.
package journal

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/everynode/everynode/internal/node/peer"
)

// Node is a node as it is sent.
type Node struct {
	name string
	// said is the hash of all but the resource version, which changes when nothing of
	// this does.
	said [sha256.Size]byte
	// Added is the line of a watch that tells of it for the first time, Object the part
	// of that which is the node.
	Added, Object []byte
}

// Event is a change, as a line of a watch.
type Event struct {
	Version uint64
	Line    []byte
}

// Journal is the nodes and their last changes.
type Journal struct {
	// nodes are in the order of their names.
	nodes []*Node
	// shared says that nodes was given away, and is not to be written to.
	shared bool
	// version is up to which everything is known; 0 for nothing yet.
	version uint64
	// start is after which all changes are in events.
	start  uint64
	events []Event
	keep   int
}

// New returns a journal that remembers at least that many changes.
func New(keep int) *Journal { return &Journal{keep: keep} }

// Version is up to which everything is known; 0 for nothing yet.
func (j *Journal) Version() uint64 { return j.version }

// Nodes are all nodes in the order of their names. They are not to be changed.
func (j *Journal) Nodes() []*Node {
	j.shared = true
	return j.nodes
}

// Since tells what changed after a version. It is false if that is not known any more.
// Nothing of it is to be changed.
func (j *Journal) Since(version uint64) ([]Event, bool) {
	if version < j.start {
		return nil, false
	}
	from, _ := slices.BinarySearchFunc(j.events, version+1, func(e Event, v uint64) int {
		return cmp.Compare(e.Version, v)
	})
	return slices.Clip(j.events[from:]), true
}

// Reach notes that everything up to the version is known.
func (j *Journal) Reach(version uint64) { j.version = max(j.version, version) }

// Replace takes all nodes again. What became of them in between is not known, so if there
// is any difference, changes before that version are forgotten.
func (j *Journal) Replace(nodes []*peer.Node, version uint64) error {
	all := make([]*Node, 0, len(nodes))
	for _, n := range nodes {
		now, err := encode(n)
		if err != nil {
			return err
		}
		all = append(all, now)
	}
	slices.SortFunc(all, func(a, b *Node) int { return strings.Compare(a.name, b.name) })
	same := j.version > 0 && slices.EqualFunc(all, j.nodes, func(a, b *Node) bool { return a.said == b.said })
	if !same {
		j.nodes, j.shared = all, false
		j.start, j.events = version, nil
	}
	j.Reach(version)
	return nil
}

// Put takes a node as it is now. It reports whether that is news.
func (j *Journal) Put(n *peer.Node) (news bool, err error) {
	version, err := versionOf(n)
	if err != nil {
		return false, err
	}
	now, err := encode(n)
	if err != nil {
		return false, err
	}
	defer j.Reach(version)
	at, there := j.find(n.Name)
	switch {
	case !there:
		j.own()
		j.nodes = slices.Insert(j.nodes, at, now)
		j.note(Event{version, now.Added})
	case j.nodes[at].said == now.said:
		return false, nil
	default:
		j.own()
		j.nodes[at] = now
		j.note(Event{version, Line(watch.Modified, now.Object)})
	}
	return true, nil
}

// Remove takes note that a node is gone, n being the last of it. It reports whether that
// is news.
func (j *Journal) Remove(n *peer.Node) (news bool, err error) {
	version, err := versionOf(n)
	if err != nil {
		return false, err
	}
	defer j.Reach(version)
	at, there := j.find(n.Name)
	if !there {
		return false, nil
	}
	last, err := encode(n)
	if err != nil {
		return false, err
	}
	j.own()
	j.nodes = slices.Delete(j.nodes, at, at+1)
	j.note(Event{version, Line(watch.Deleted, last.Object)})
	return true, nil
}

func (j *Journal) find(name string) (int, bool) {
	return slices.BinarySearchFunc(j.nodes, name, func(n *Node, name string) int { return strings.Compare(n.name, name) })
}

// own makes the nodes ours to change.
func (j *Journal) own() {
	if j.shared {
		j.nodes, j.shared = slices.Clone(j.nodes), false
	}
}

func (j *Journal) note(e Event) {
	j.events = append(j.events, e)
	if extra := len(j.events) - j.keep; extra >= j.keep {
		j.start = j.events[extra-1].Version
		j.events = slices.Clone(j.events[extra:])
	}
}

// Bookmark is the line of a watch that says how far it has come; end marks the one
// after the nodes that there were at first.
func Bookmark(version uint64, end bool) []byte {
	object := fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d","creationTimestamp":null`,
		peer.Kind, peer.GroupVersion.String(), version)
	if end {
		object = fmt.Appendf(object, `,"annotations":{%q:"true"}`, metav1.InitialEventsAnnotationKey)
	}
	return Line(watch.Bookmark, append(object, "}}"...))
}

// lineEnd comes after the object in a line.
const lineEnd = "}\n"

// Line is a line of a watch; the object is in JSON.
func Line(t watch.EventType, object []byte) []byte {
	return fmt.Appendf(nil, `{"type":%q,"object":%s%s`, t, object, lineEnd)
}

func encode(n *peer.Node) (*Node, error) {
	said := *n
	said.ResourceVersion = ""
	text, err := json.Marshal(&said)
	if err != nil {
		return nil, fmt.Errorf("encode what others learn of node %s: %w", n.Name, err)
	}
	object, err := json.Marshal(n)
	if err != nil {
		return nil, fmt.Errorf("encode what others learn of node %s: %w", n.Name, err)
	}
	added := Line(watch.Added, object)
	from := len(added) - len(object) - len(lineEnd)
	return &Node{name: n.Name, said: sha256.Sum256(text), Added: added, Object: added[from : from+len(object)]}, nil
}

func versionOf(n *peer.Node) (uint64, error) {
	version, err := strconv.ParseUint(n.ResourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the resource version of node %s: %w", n.Name, err)
	}
	return version, nil
}
