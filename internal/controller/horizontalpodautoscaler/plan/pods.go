package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/objects/pod"
)

// How long a pod's processor time is not to be trusted.
const (
	// startsUp is how long a pod may be busy with its start.
	startsUp = 5 * time.Minute
	// firstReady is how long after its start a pod that was never ready says so for the first time.
	firstReady = 30 * time.Second
	// tolerance is by what share a metric may miss its target.
	tolerance = 0.1
)

var errNoPods = errors.New("no pods returned by selector while calculating replica count")

// groups are the pods of a target by what a metric says of them.
type groups struct {
	// values are those that count.
	values map[string]int64
	// unready are pods whose value does not count yet, and missing those that have none.
	unready, missing []string
	ready            int
}

// grouped tells apart the pods whose values count, those that are not ready, and those without values. Pods that are
// over or being deleted count for nothing.
func (d *decision) grouped(name corev1.ResourceName, values map[string]PodValue) (groups, error) {
	if len(d.Pods) == 0 {
		return groups{}, errNoPods
	}
	g := groups{values: map[string]int64{}}
	for name, v := range values {
		g.values[name] = v.Milli
	}
	for i := range d.Pods {
		p := &d.Pods[i]
		v, known := values[p.Name]
		switch {
		case p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodFailed:
			delete(g.values, p.Name)
		case p.Status.Phase == corev1.PodPending:
			g.unready = append(g.unready, p.Name)
			delete(g.values, p.Name)
		case !known:
			g.missing = append(g.missing, p.Name)
		case name == corev1.ResourceCPU && d.starting(p, v):
			g.unready = append(g.unready, p.Name)
			delete(g.values, p.Name)
		default:
			g.ready++
		}
	}
	if len(g.values) == 0 {
		return g, errors.New("did not receive metrics for targeted pods (pods might be unready)")
	}
	return g, nil
}

// starting reports whether a pod's processor time may be that of its start.
func (d *decision) starting(p *corev1.Pod, v PodValue) bool {
	ready := pod.Condition(p, corev1.PodReady)
	if ready == nil || p.Status.StartTime == nil {
		return true
	}
	started := p.Status.StartTime.Time
	if started.Add(startsUp).After(d.Now) {
		// A value that was taken in part before the pod became ready tells of its start.
		return ready.Status == corev1.ConditionFalse || v.Time.Before(ready.LastTransitionTime.Add(v.Window))
	}
	return ready.Status == corev1.ConditionFalse && started.Add(firstReady).After(ready.LastTransitionTime.Time)
}

// sums are what the pods use together, in thousandths, of what they requested together.
type sums struct {
	used, requested, pods int64
}

func (s sums) percent() int64 { return int64(float64(s.used) * 100 / float64(s.requested)) }

// replicas is the number of pods that would bring a metric to its target. ratio says how far the values are from it,
// and full what a pod without a value is taken to use when that would lead to fewer pods. Pods of which nothing is
// known must make the change smaller, and never turn its direction.
func (d *decision) replicas(g groups, ratio func(map[string]int64) (float64, sums), full func(string) int64) (int32,
	sums, error) {
	now := d.Scale.Wanted
	first, sum := ratio(g.values)
	if sum.pods == 0 {
		return 0, sum, errors.New("no metrics returned matched known pods")
	}
	idle := len(g.unready) > 0 && first > 1
	if !idle && len(g.missing) == 0 {
		if d.tolerable(first) {
			return now, sum, nil
		}
		return ceil(first * float64(g.ready)), sum, nil
	}
	values := g.filled(first, idle, full)
	second, _ := ratio(values)
	out := ceil(second * float64(len(values)))
	turned := (first-1)*(second-1) < 0 || (second-1)*float64(out-now) < 0
	if d.tolerable(second) || turned {
		return now, sum, nil
	}
	return out, sum, nil
}

// filled are the values with those that pods without one are taken to have.
func (g groups) filled(ratio float64, idle bool, full func(string) int64) map[string]int64 {
	values := maps.Clone(g.values)
	for _, name := range g.missing {
		switch {
		case ratio < 1:
			values[name] = full(name)
		case ratio > 1:
			values[name] = 0
		}
	}
	if idle {
		for _, name := range g.unready {
			values[name] = 0
		}
	}
	return values
}

// tolerable reports whether a metric is near enough to its target.
func (d *decision) tolerable(ratio float64) bool {
	up, down := tolerance, tolerance
	if b := d.Autoscaler.Spec.Behavior; b != nil {
		if b.ScaleUp != nil && b.ScaleUp.Tolerance != nil {
			up = b.ScaleUp.Tolerance.AsApproximateFloat64()
		}
		if b.ScaleDown != nil && b.ScaleDown.Tolerance != nil {
			down = b.ScaleDown.Tolerance.AsApproximateFloat64()
		}
	}
	return 1-down <= ratio && ratio <= 1+up
}

// requests is what pods ask for of a resource, in thousandths, in all containers or in one.
func requests(pods []corev1.Pod, name corev1.ResourceName, container string) (map[string]int64, error) {
	out := make(map[string]int64, len(pods))
	for i := range pods {
		p := &pods[i]
		sum, found := int64(0), false
		for _, c := range containers(p) {
			if container != "" && c.Name != container {
				continue
			}
			request, ok := c.Resources.Requests[name]
			if !ok {
				return nil, fmt.Errorf("missing request for %s in container %s of Pod %s", name, c.Name, p.Name)
			}
			sum, found = sum+request.MilliValue(), true
		}
		if !found {
			return nil, fmt.Errorf("container %s not found in Pod %s", container, p.Name)
		}
		out[p.Name] = sum
	}
	return out, nil
}

// containers are those that run as long as the pod: its own, and sidecars.
func containers(p *corev1.Pod) []corev1.Container {
	out := slices.Clone(p.Spec.Containers)
	for _, c := range p.Spec.InitContainers {
		if pod.IsSidecar(&c) {
			out = append(out, c)
		}
	}
	return out
}
