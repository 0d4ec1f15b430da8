package nodestartup

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/controller/nodestartup/plan"
	"github.com/everynode/everynode/internal/loop/deadline"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

const (
	// soon is when to look again at what the cache does not show yet.
	soon = 100 * time.Millisecond
	// moves is when to look again at what goes by the course of a rollout, which no event here tells of.
	moves = time.Second
	// patience is how long an answer of the DaemonSet controller may take.
	patience = 5 * time.Second
)

// look decides about a node and carries that out. It returns when to look again, zero for at the next news.
func (c *controller) look(ctx context.Context, name string) (time.Time, error) {
	var n corev1.Node
	err := c.reader.Get(ctx, types.NamespacedName{Name: name}, &n)
	if err != nil {
		return time.Time{}, client.IgnoreNotFound(err)
	}
	now := c.cfg.Clock.Now()
	leaves, err := c.leaves(ctx)
	if err != nil {
		return time.Time{}, err
	}
	written := false
	if c.cfg.Marker != nil && !leaves {
		written, err = c.mark(ctx, &n, now)
	}
	gate := nodestartup.TaintOf(n.Spec.Taints)
	if gate == nil || written || err != nil {
		return time.Time{}, err
	}
	return c.lead(ctx, &n, gate, leaves, now)
}

// lead leads a node with a gate on, or opens it because Everynode leaves.
func (c *controller) lead(ctx context.Context, n *corev1.Node, gate *corev1.Taint, leaves bool,
	now time.Time) (time.Time, error) {
	s, behind, err := c.startupOf(ctx, gate)
	if leaves {
		s, behind, err = nil, false, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	switch {
	case behind:
		return now.Add(soon), nil
	case s != nil && newer.Check(s) != nil:
		return time.Time{}, nil // only who knows all that it says knows whether the node may open
	}
	facts, until, err := c.factsOf(ctx, n, s, now)
	if err != nil {
		return time.Time{}, err
	}
	d := plan.Decide(s, gate, func(ds types.NamespacedName) plan.Daemon { return facts[ds] }, now)
	d.Again = deadline.Sooner(d.Again, until)
	c.remember(n, gate, &d)
	if d.Changed {
		err := c.carryOut(ctx, n, s, gate, &d)
		if err != nil {
			return time.Time{}, err
		}
	}
	return d.Again, nil
}

// startupOf returns the NodeStartup that a gate names; nil if there is none any more. That is never taken from the
// cache, which may know the node before the NodeStartup: behind tells that it does.
func (c *controller) startupOf(ctx context.Context, gate *corev1.Taint) (s *v1alpha1.NodeStartup, behind bool,
	err error) {
	place, known := nodestartup.PlaceOf(gate.Value)
	if !known {
		return nil, false, nil
	}
	s = &v1alpha1.NodeStartup{}
	err = c.reader.Get(ctx, types.NamespacedName{Name: place.Startup}, s)
	switch {
	case err == nil && s.DeletionTimestamp == nil:
		return s, false, nil
	case client.IgnoreNotFound(err) != nil:
		return nil, false, fmt.Errorf("read NodeStartup %s: %w", place.Startup, err)
	}
	live, err := c.cfg.Startups.Get(ctx, place.Startup, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("read NodeStartup %s live: %w", place.Startup, err)
	}
	return nil, live.DeletionTimestamp == nil, nil
}

// factsOf says how the listed DaemonSets are on a node, and until when that may hold without any news; zero for long.
func (c *controller) factsOf(ctx context.Context, n *corev1.Node, s *v1alpha1.NodeStartup,
	now time.Time) (out map[types.NamespacedName]plan.Daemon, until time.Time, err error) {
	out = map[types.NamespacedName]plan.Daemon{}
	if s == nil {
		return out, until, nil
	}
	pods, err := c.daemonPods(ctx, n.Name, now)
	if err != nil {
		return nil, until, err
	}
	for i := range s.Spec.Groups {
		for _, listed := range s.Spec.Groups[i].DaemonSets {
			name := nodestartup.NameOf(listed)
			var ds appsv1.DaemonSet
			err := c.reader.Get(ctx, name, &ds)
			switch {
			case apierrors.IsNotFound(err):
				out[name] = plan.Daemon{Missing: true}
			case err != nil:
				return nil, until, fmt.Errorf("read DaemonSet %s: %w", name, err)
			default:
				rules, known, again := c.rulesOn(ctx, &ds, n.Name)
				if again > 0 {
					until = deadline.Sooner(until, now.Add(again))
				}
				d := plan.DaemonOf(n, &ds, rules, pods, now)
				d.Elsewhere = d.Elsewhere && known // else the node might open too early, for good
				d.Barred = !d.Missing && c.bars(&ds)
				out[name] = d
			}
		}
	}
	return out, until, nil
}

// rulesOn returns the rules by which a node gets a daemon, or gets none: those of the revision that it is to have.
// While that is not known, they are those of the present template. Again is when to ask again; 0 for at news.
func (c *controller) rulesOn(ctx context.Context, ds *appsv1.DaemonSet,
	node string) (rules *placement.Rules, known bool, again time.Duration) {
	newest := placement.Compile(&ds.Spec.Template.Spec)
	if c.cfg.Placements == nil || ds.DeletionTimestamp != nil {
		return newest, true, 0
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rules, known = c.cfg.Placements.RulesOn(ctx, ds, node)
	switch {
	case !known:
		return newest, false, soon
	case rules == nil:
		return newest, true, 0
	}
	return rules, true, moves
}

// remember keeps what was decided of a node, for its NodeStartup's status, and tells people once if it is late.
func (c *controller) remember(n *corev1.Node, gate *corev1.Taint, d *plan.Decision) {
	c.mu.Lock()
	at := c.starting[n.Name]
	tellLate := false
	if at != nil {
		if at.late != d.Late || !slices.Equal(at.waits, d.Waits) {
			c.tell()
		}
		at.waits, at.late = d.Waits, d.Late
		if tellLate = d.Late && at.told != gate.Value; tellLate {
			at.told = gate.Value
		}
	}
	c.mu.Unlock()
	if tellLate {
		c.event(n, corev1.EventTypeWarning, "StartsLate", "The node waits for longer than its timeout for %s",
			plan.Names(d.Waits))
	}
}
