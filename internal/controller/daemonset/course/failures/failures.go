// Package failures keeps on which nodes the target of a rollout fails, and why.
package failures

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/course/words"
)

// Kept is how many nodes a status names.
const Kept = 200

// Failure is why the target fails on a node; the zero Failure if that was seen before a restart.
type Failure struct {
	Reason standing.Reason
	Why    string
}

// Failures are those of one target.
type Failures struct {
	by map[string]Failure
	// most is how many were known when they were more than names are kept of; 0 before that. It only grows.
	most int
	// said is what Words says, "" when a failure has come or gone since.
	said string
}

// Of returns the failure of a node, if it has one.
func (f *Failures) Of(node string) (Failure, bool) {
	is, failed := f.by[node]
	return is, failed
}

// Has reports whether the target fails on the node.
func (f *Failures) Has(node string) bool {
	_, failed := f.by[node]
	return failed
}

// Blame counts a node as failed.
func (f *Failures) Blame(node string, why Failure) {
	if f.by == nil {
		f.by = map[string]Failure{}
	}
	f.by[node], f.said = why, ""
	if known := len(f.by); known > Kept {
		f.most = max(f.most, known)
	}
}

// Acquit takes a failure off: the node has healed before the limit was passed.
func (f *Failures) Acquit(node string) {
	delete(f.by, node)
	f.said = ""
}

// Count is how many nodes failed.
func (f *Failures) Count() int { return max(len(f.by), f.most) }

// Sample names the first three nodes that failed.
func (f *Failures) Sample() []string {
	names := slices.Sorted(maps.Keys(f.by))
	return names[:min(3, len(names))]
}

// Words names the nodes on which the target fails, three at most. It is asked for at
// each event, so it is found out once for all events that change no failure.
func (f *Failures) Words() string {
	if f.said == "" {
		f.said = words.Nodes(f.Count())
		if names := f.Sample(); len(names) > 0 {
			f.said += " (" + strings.Join(names, ", ") + ")"
		}
	}
	return f.said
}

// Evidence says how many of the nodes that were given the target failed, and how the first of them did.
func (f *Failures) Evidence(given int) string {
	failed := f.Count()
	text := fmt.Sprintf("failed on %d of %s", failed, words.Nodes(max(given, failed)))
	for _, name := range f.Sample() {
		if why := f.by[name].Why; why != "" {
			return text + ": " + name + ": " + why
		}
	}
	return text
}

// Reasons counts the failures by their reason.
func (f *Failures) Reasons() map[standing.Reason]int {
	out := map[standing.Reason]int{}
	for _, is := range f.by {
		out[cmp.Or(is.Reason, standing.BecauseUnknown)]++
	}
	if more := f.Count() - len(f.by); more > 0 {
		out[standing.BecauseUnknown] += more
	}
	return out
}

// Recall takes over what a status says.
func (f *Failures) Recall(of *v1alpha1.Failures) {
	for _, node := range of.Nodes {
		f.Blame(node, Failure{})
	}
	if of.More > 0 {
		f.most = len(of.Nodes) + int(of.More)
	}
}

// Status is what a status says of them.
func (f *Failures) Status(revision string) *v1alpha1.Failures {
	names := slices.Sorted(maps.Keys(f.by))
	kept := min(len(names), Kept)
	return &v1alpha1.Failures{Revision: revision, Nodes: names[:kept], More: int32(f.Count() - kept)}
}
