// Package judge says from a round's history alone what was not as the documentation promises of policies beside
// kube-controller-manager. It asks none of the code under test. The history is in the order of the database's
// revisions; what the test itself did stands in between, where it did it.
package judge

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Entry is one thing that happened. Just one of the pointers and texts is set.
type Entry struct {
	// At is when the test saw it, or did it.
	At time.Time
	// Gone tells that the object is not there any more.
	Gone    bool
	Pod     *Pod
	Node    *Node
	Rollout *Rollout
	// Copy is the name of a copy of content.
	Copy string
	// Told is a DaemonSet of which an event says that pods are wrong, and Counted says how many are by the metric.
	Told    string
	Counted *Counted
	// Silent tells that from here on a pod may be made without the webhook, and Answers that it answers again.
	Silent, Answers bool
	// Unsure tells that the webhook has lately let a pod be made as it was, because it could not tell in time what it is
	// to be.
	Unsure bool
	// Touches is the pod, by its UID, or the node that the test deletes, breaks or mends.
	Touches string
	// Retries is the DaemonSet of which somebody has a failed revision tried again.
	Retries string
	Limit   *Limit
	Stored  *Stored
	// Approves is a placement of a DaemonSet that somebody approves.
	Approves *Stored
	// Policy is a DaemonSet of which a policy is there; Gone if it is not any more.
	Policy string
	// Starts are the DaemonSets that a NodeStartup lists for all nodes from here on.
	Starts []string
	Bound  *Bound
	// Frees is the DaemonSet whose change somebody has go on without a policy.
	Frees string
}

// Stored is how a DaemonSet is stored.
type Stored struct {
	Set string
	// Placement are the labels of nodes that it is for, as "key=value"; "" is all nodes.
	Placement string
	// Taken tells that it is taken over.
	Taken bool
}

// Counted is how many pods of a DaemonSet are wrong, as a metric says.
type Counted struct {
	Set string
	N   int
}

// Pod is one of a DaemonSet.
type Pod struct {
	UID, Set, Node string
	// Revision is the template's hash and, behind a dot, the content. Whole is it with the variants, if it has some.
	Revision, Whole  string
	Image            string
	Available, Going bool
	// Reads are the names of its ConfigMaps, and of its Secrets behind "secret ".
	Reads []string
}

// Node is one, with the step that its labels put it into.
type Node struct {
	Name, Step string
	Ready      bool
	// Rack is its domain; Labels are those by which DaemonSets choose nodes, as "key=value".
	Rack   string
	Labels []string
	// Closed tells that it starts, and ordinary pods are kept away.
	Closed bool
}

// Rollout is what its status says.
type Rollout struct {
	Set, Stable, Target, Step, Phase string
	Steps                            []string
	// Goal is the target with its variants, if it has some; Failed are the revisions that failed, with theirs.
	Goal   string
	Failed []string
	// Digests are those of templates, by their hash.
	Digests map[string]string
}

// Limit is how many nodes of a DaemonSet may be without a daemon by our making, in each of the places of a kind: the
// steps of a wave, by its name, the racks by "rack", or "" for all nodes. With 0 it is none.
type Limit struct {
	Set, Of string
	Max     int
}

// place is the one of a kind that the node is in, and whether it is in one.
func (n *Node) place(kind string) (string, bool) {
	switch wave, _, _ := strings.Cut(n.Step, "/"); kind {
	case "":
		return "all nodes", true
	case "rack":
		return "rack " + n.Rack, n.Rack != ""
	case wave:
		return "step " + n.Step, true
	}
	return "", false
}

const (
	// settles is how long after the webhook's return, or a kill, a pod may still have been made without it: its
	// creation may be seen that much later.
	settles = 3 * time.Second
	// asks is how long before a pod is seen its status may have been read.
	asks = 5 * time.Second
	// Known is within what time after the webhook's return wrong pods must be known.
	Known = time.Minute
	// edits is how long an old limit may be followed.
	edits = 10 * time.Second
)

// status is a rollout, and from and until when it was what the API said; the last one has no end.
type status struct {
	*Rollout
	began, ended time.Time
}

// book is what is known at one point of the history.
type book struct {
	pods     map[string]*Pod
	nodes    map[string]*Node
	rollouts map[string][]status
	copies   map[string]bool
	touched  map[string]bool
	silent   bool
	answers  time.Time
	made     map[string]time.Time
	stored   map[string]*Stored
	// closed are the nodes that have been closed since they were created.
	closed map[string]bool
	// policyGone says since when a DaemonSet has no policy, and freed that its change may go on all the same.
	policyGone map[string]time.Time
	freed      map[string]bool
}

func newBook() *book {
	return &book{pods: map[string]*Pod{}, nodes: map[string]*Node{}, rollouts: map[string][]status{},
		copies: map[string]bool{}, touched: map[string]bool{}, made: map[string]time.Time{},
		stored: map[string]*Stored{}, closed: map[string]bool{}, policyGone: map[string]time.Time{},
		freed: map[string]bool{}}
}

// note takes an entry in.
func (b *book) note(e Entry) {
	switch {
	case e.Pod != nil:
		if b.pods[e.Pod.UID] == nil {
			b.made[e.Pod.UID] = e.At
		}
		put(b.pods, e.Pod.UID, e.Pod, e.Gone)
	case e.Node != nil:
		b.closed[e.Node.Name] = e.Node.Closed && (b.nodes[e.Node.Name] == nil || b.closed[e.Node.Name])
		put(b.nodes, e.Node.Name, e.Node, e.Gone)
	case e.Policy != "":
		b.policy(e)
	case e.Frees != "":
		b.freed[e.Frees] = true
	case e.Stored != nil:
		put(b.stored, e.Stored.Set, e.Stored, e.Gone)
	case e.Copy != "":
		put(b.copies, e.Copy, true, e.Gone)
	case e.Touches != "":
		b.touched[e.Touches] = true
	case e.Silent:
		b.silent = true
	case e.Answers:
		b.silent, b.answers = false, e.At
	case e.Rollout != nil:
		b.rollout(e)
	}
}

func (b *book) rollout(e Entry) {
	all := b.rollouts[e.Rollout.Set]
	if len(all) > 0 {
		all[len(all)-1].ended = e.At
	}
	if e.Gone {
		e.Rollout = &Rollout{Set: e.Rollout.Set}
	}
	b.rollouts[e.Rollout.Set] = append(all, status{Rollout: e.Rollout, began: e.At})
}

func (b *book) policy(e Entry) {
	delete(b.policyGone, e.Policy)
	delete(b.freed, e.Policy)
	if e.Gone {
		b.policyGone[e.Policy] = e.At
	}
}

// chosen reports whether a DaemonSet is for a node.
func (b *book) chosen(set string, n *Node) bool {
	s := b.stored[set]
	return s == nil || s.Placement == "" || slices.Contains(n.Labels, s.Placement)
}

func put[T any](all map[string]T, key string, value T, gone bool) {
	if gone {
		delete(all, key)
		return
	}
	all[key] = value
}

// answering reports whether a pod that is seen at a time was surely made with the webhook's answer.
func (b *book) answering(at time.Time) bool {
	return !b.silent && !b.answers.IsZero() && at.Sub(b.answers) >= settles
}

// lately are the statuses that an answer may have gone by.
func (b *book) lately(set string, at time.Time) (out []status) {
	for _, s := range b.rollouts[set] {
		if s.ended.IsZero() || at.Sub(s.ended) < asks {
			out = append(out, s)
		}
	}
	return out
}

func template(revision string) string {
	hash, _, _ := strings.Cut(revision, ".")
	return hash
}

// whole is the revision of a pod, with its variants.
func (p *Pod) whole() string { return cmp.Or(p.Whole, p.Revision) }

// goal is the target, with its variants.
func (r *Rollout) goal() string { return cmp.Or(r.Goal, r.Target) }

// failed reports whether a revision, with its variants, has failed.
func (r *Rollout) failed(whole string) bool { return slices.Contains(r.Failed, whole) }

// back reports whether all nodes are to have the stable revision.
func (r *Rollout) back() bool {
	return r.Target == r.Stable || r.failed(r.goal()) || r.Phase == "RolledBack"
}

// allows reports whether a node of a step may get a pod of a revision by a status. While nothing is stable, or the
// step is not one of the rollout's, anything is.
func (r *Rollout) allows(step, revision string) bool {
	if r.Stable == "" {
		return true
	}
	if !strings.Contains(r.Stable+r.Target, ".") {
		revision = template(revision)
	}
	if place, is := r.place(); is && !slices.Contains(r.Steps, step) {
		return revision == r.Stable || !r.back() && revision == r.Target && place > 0 // ramps says more
	}
	if revision == r.Stable {
		// A moment later the step may have begun; before that the node keeps what it had.
		return r.back() || !r.begun(step)
	}
	return !r.back() && revision == r.Target && r.begun(step)
}

// begun reports whether a step has.
func (r *Rollout) begun(step string) bool {
	at, open := slices.Index(r.Steps, step), slices.Index(r.Steps, r.Step)
	return at >= 0 && at <= open
}
