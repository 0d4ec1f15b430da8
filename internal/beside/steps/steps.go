// Package steps knows in which step of its policy a node is, for each DaemonSet whose pods somebody asks about. It is
// fed by the same facts as the core that leads changes, and chooses the nodes of a fleet by the same rules; a test
// compares the two. It is pure: no clock, no lock, no client.
package steps

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/history"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/objects/pod"
)

// Book holds nodes, where there are pods, and the fleets that were asked about.
type Book struct {
	nodes  map[string]*corev1.Node
	pods   map[types.UID]place
	at     map[place]int
	fleets map[types.UID]*fleet
}

// place is a node on which there are pods of a DaemonSet.
type place struct {
	set  types.UID
	node string
}

// fleet is the nodes of one DaemonSet in the steps of its policy.
type fleet struct {
	policyUID  types.UID
	generation int64
	revision   string
	rules      *placement.Rules
	policy     *rolloutpolicy.Policy
	steps      *rolloutpolicy.Fleet
}

// New returns an empty book.
func New() *Book {
	return &Book{
		nodes: map[string]*corev1.Node{}, pods: map[types.UID]place{}, at: map[place]int{}, fleets: map[types.UID]*fleet{},
	}
}

// Knows reports whether the node is known.
func (b *Book) Knows(node string) bool { return b.nodes[node] != nil }

// Nodes are all that are known.
func (b *Book) Nodes() []*corev1.Node { return slices.Collect(maps.Values(b.nodes)) }

// SetNode tells of a node, which must not change afterwards.
func (b *Book) SetNode(n *corev1.Node) {
	b.nodes[n.Name] = n
	for set, f := range b.fleets {
		b.sort(set, f, n.Name)
	}
}

// DeleteNode forgets a node.
func (b *Book) DeleteNode(name string) {
	delete(b.nodes, name)
	for _, f := range b.fleets {
		f.steps.Delete(name)
	}
}

// SetPod tells of a pod. One that no DaemonSet controls is ignored.
func (b *Book) SetPod(p *corev1.Pod) {
	is := place{set: belongings.OwnerOf(p), node: pod.TargetNode(p)}
	was, known := b.pods[p.UID]
	if known && was == is || is.set == "" || is.node == "" {
		return
	}
	b.DeletePod(p.UID)
	b.pods[p.UID] = is
	b.at[is]++
	b.occupy(is, 1)
}

// DeletePod forgets a pod.
func (b *Book) DeletePod(uid types.UID) {
	was, known := b.pods[uid]
	if !known {
		return
	}
	delete(b.pods, uid)
	b.at[was]--
	b.occupy(was, 0)
	if b.at[was] == 0 {
		delete(b.at, was)
	}
}

// occupy sorts a node again whose number of pods has become the given one.
func (b *Book) occupy(at place, turns int) {
	f := b.fleets[at.set]
	if f != nil && b.at[at] == turns {
		b.sort(at.set, f, at.node)
	}
}

// DeleteSet forgets what was asked about a DaemonSet.
func (b *Book) DeleteSet(uid types.UID) { delete(b.fleets, uid) }

// ErrNotChosen says that the DaemonSet is not for a node, ErrNotFollowed that nobody can follow the policy.
var (
	ErrNotChosen   = errors.New("it is not one of the DaemonSet's")
	ErrNotFollowed = errors.New("it cannot be followed")
)

// Step returns the policy, compiled, and the node's step in it, for a DaemonSet whose nodes are chosen by the template
// of the revision. The first question about a policy or a template costs a look at every node.
func (b *Book) Step(
	set types.UID, policy *v1alpha1.RolloutPolicy, by *appsv1.ControllerRevision, node string,
) (*rolloutpolicy.Policy, rolloutpolicy.Step, error) {
	f, err := b.fleet(set, policy, by)
	if err != nil {
		return nil, rolloutpolicy.Step{}, err
	}
	at, known := f.steps.Step(node)
	if !known {
		return nil, at, fmt.Errorf("node %s: %w", node, ErrNotChosen)
	}
	return f.policy, at, nil
}

// fleet returns the fleet of a DaemonSet, which is made where there is none for the policy and the revision.
func (b *Book) fleet(set types.UID, policy *v1alpha1.RolloutPolicy, by *appsv1.ControllerRevision) (*fleet, error) {
	hash := history.HashOf(by)
	f := b.fleets[set]
	if f != nil && f.policyUID == policy.UID && f.generation == policy.Generation && f.revision == hash &&
		newer.Check(policy) == nil {
		return f, nil
	}
	template, err := history.Template(by)
	if err != nil {
		return nil, fmt.Errorf("read the template of %s: %w", by.Name, err)
	}
	compiled, err := rolloutpolicy.Follow(policy, time.LoadLocation)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w: %w", policy.Name, ErrNotFollowed, err)
	}
	f = &fleet{
		policyUID: policy.UID, generation: policy.Generation, revision: hash,
		rules: placement.Compile(&template.Spec), policy: compiled, steps: rolloutpolicy.NewFleet(compiled),
	}
	b.fleets[set] = f
	for name := range b.nodes {
		b.sort(set, f, name)
	}
	return f, nil
}

// sort puts a node into the fleet, or takes it out, as the placement rules say.
func (b *Book) sort(set types.UID, f *fleet, name string) {
	n := b.nodes[name]
	rules := placement.Set{Newest: f.revision, Rules: f.rules}
	if n != nil && rules.Selects(f.revision, n, b.at[place{set, name}] > 0) {
		f.steps.Set(name, n.Labels)
		return
	}
	f.steps.Delete(name)
}
