package ledger

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// Need is what one container must be given of one resource.
type Need struct {
	Container, Resource string
	Amount              int
	// Reusable are the containers before it in the pod whose devices it takes before others.
	Reusable []string
}

// Needs lists what the pod's containers must be given, in the order in which they are. Resources that provided does not
// call those of device plugins are somebody else's.
func Needs(pod *corev1.Pod, provided func(resource string) bool) []Need {
	var out []Need
	var before []string
	add := func(c *corev1.Container) {
		names := make([]string, 0, len(c.Resources.Limits))
		for name := range c.Resources.Limits {
			if provided(string(name)) {
				names = append(names, string(name))
			}
		}
		slices.Sort(names)
		for _, name := range names {
			amount := c.Resources.Limits[corev1.ResourceName(name)]
			if amount.Value() > 0 {
				out = append(out, Need{c.Name, name, int(amount.Value()), slices.Clone(before)})
			}
		}
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		add(c)
		if !podfacts.IsSidecar(c) {
			before = append(before, c.Name)
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return out
}

// Choice is what a container can be given. It gets Must, and of Free as many as are missing then.
type Choice struct {
	// Has says that the container was given what it needs before, and nothing is to be done.
	Has        bool
	Must, Free []string
	Amount     int
}

// Choose says what the pod's container can be given. A grant that the plugin did not confirm is none, and given up. The
// error says to the user why the container cannot be given what it needs.
func (l *Ledger) Choose(pod types.UID, n Need) (Choice, error) {
	r := l.resources[n.Resource]
	if had, ok := l.Get(pod, n.Container, n.Resource); ok {
		if had.Answer != nil {
			return l.again(r, pod, n, had)
		}
		l.Drop(had)
	}
	switch {
	case r == nil || r.devices == nil || !r.lost.IsZero():
		return Choice{}, fmt.Errorf("cannot allocate unregistered device %s", n.Resource)
	case !slices.ContainsFunc(l.Devices(n.Resource), func(d Device) bool { return d.Healthy }):
		return Choice{}, fmt.Errorf("no healthy devices present; cannot allocate unhealthy devices %s", n.Resource)
	}
	c := Choice{Amount: n.Amount, Must: l.reusable(pod, n)}
	c.Must = c.Must[:min(len(c.Must), n.Amount)]
	for _, d := range l.Devices(n.Resource) {
		if _, taken := l.owners[n.Resource][d.ID]; d.Healthy && !taken {
			c.Free = append(c.Free, d.ID)
		}
	}
	if missing := n.Amount - len(c.Must); len(c.Free) < missing {
		return Choice{}, fmt.Errorf(
			"requested number of devices unavailable for %s. Requested: %d, Available: %d", n.Resource, missing, len(c.Free),
		)
	}
	return c, nil
}

// again says whether a container may keep what it was given in an earlier life of the agent. A plugin that is still to
// come says nothing against it.
func (l *Ledger) again(r *offer, pod types.UID, n Need, had Grant) (Choice, error) {
	if len(had.Devices) != n.Amount {
		return Choice{}, fmt.Errorf(
			"pod %q container %q changed request for resource %q from %d to %d",
			pod, n.Container, n.Resource, len(had.Devices), n.Amount,
		)
	}
	if r != nil && r.lost.IsZero() {
		for _, id := range had.Devices {
			if !r.devices[id].Healthy {
				return Choice{}, fmt.Errorf(
					"previously allocated devices are no longer healthy; cannot allocate unhealthy devices %s", n.Resource,
				)
			}
		}
	}
	return Choice{Has: true}, nil
}

// reusable are the healthy devices of the resource that containers before have, and nobody who runs beside the one that
// needs them.
func (l *Ledger) reusable(pod types.UID, n Need) []string {
	kept := map[string]bool{}
	var out []string
	for _, g := range l.Of(pod) {
		if g.Resource != n.Resource {
			continue
		}
		for _, id := range g.Devices {
			if !slices.Contains(n.Reusable, g.Container) {
				kept[id] = true
			}
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(id string) bool {
		return kept[id] || !l.resources[n.Resource].devices[id].Healthy
	})
}

// Pick is what the container gets: what it must, then what its plugin prefers as far as that is free, then others.
func (c Choice) Pick(preferred []string) []string {
	out := slices.Clone(c.Must)
	for _, list := range [][]string{preferred, c.Free} {
		for _, id := range list {
			if len(out) < c.Amount && slices.Contains(c.Free, id) && !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
	}
	return out
}

// IsExtended says whether the name can be that of a resource of device plugins: one in a domain that is not Kubernetes'
// own.
func IsExtended(name string) bool {
	domain, _, ok := strings.Cut(name, "/")
	return ok && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io") &&
		!strings.HasPrefix(name, "requests.")
}
