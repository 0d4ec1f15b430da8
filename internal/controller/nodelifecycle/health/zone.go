package health

import (
	"container/list"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// zone is a failure domain: its unhealthy nodes get their NoExecute taint one by one.
type zone struct {
	name      string
	nodes     int
	unhealthy int
	rate      float64 // NoExecute taints per second
	next      time.Time
	queue     *list.List // of unhealthy nodes, *entry, that wait for the taint, oldest first
}

// place counts the node in its zone and queues it for eviction if it is unhealthy.
func (t *Tracker) place(e *entry) {
	name := zoneName(e.node)
	if e.zone == nil || e.zone.name != name {
		t.leaveZone(e)
		z := t.zones[name]
		if z == nil {
			z = &zone{name: name, rate: t.cfg.EvictionRate, queue: list.New()}
			t.zones[name] = z
		}
		e.zone, e.healthy = z, true
		z.nodes++
	}
	status := e.status()
	if healthy := status == corev1.ConditionTrue; healthy != e.healthy {
		e.healthy = healthy
		if healthy {
			e.zone.unhealthy--
		} else {
			e.zone.unhealthy++
		}
	}
	switch {
	case status != corev1.ConditionFalse && status != corev1.ConditionUnknown:
		e.evict = false
		e.zone.unqueue(e)
	case !e.evict && e.queued == nil:
		e.queued = e.zone.queue.PushBack(e)
	}
}

func (t *Tracker) leaveZone(e *entry) {
	z := e.zone
	if z == nil {
		return
	}
	z.unqueue(e)
	z.nodes--
	if !e.healthy {
		z.unhealthy--
	}
	if z.nodes == 0 {
		delete(t.zones, z.name)
	}
	e.zone = nil
}

// judgeZones sets each zone's eviction rate by how much of it is unhealthy.
func (t *Tracker) judgeZones(now time.Time) {
	disrupted := len(t.zones) > 0
	for _, z := range t.zones {
		disrupted = disrupted && z.unhealthy == z.nodes
	}
	if t.disrupted != disrupted {
		for _, name := range slices.Sorted(maps.Keys(t.nodes)) {
			e := t.nodes[name]
			if disrupted {
				e.evict = false // until it is its turn again
			} else {
				e.seen = now // this side may have been cut off: silence until now does not count
			}
			t.place(e)
			t.dirty[name] = struct{}{}
		}
	}
	t.disrupted = disrupted
	for _, z := range t.zones {
		rate := t.rate(z)
		if rate != z.rate {
			z.rate = rate
			z.next = now
		}
	}
}

func (t *Tracker) rate(z *zone) float64 {
	const fewNodes = 2 // of which any share may be down by chance
	partly := z.unhealthy < z.nodes && z.unhealthy > fewNodes &&
		float64(z.unhealthy) >= t.cfg.UnhealthyShare*float64(z.nodes)
	switch {
	case t.disrupted:
		return 0
	case !partly:
		return t.cfg.EvictionRate
	case z.nodes >= t.cfg.LargeZone:
		return t.cfg.SecondaryEvictionRate
	default:
		return 0
	}
}

// release lets those nodes have their NoExecute taint that are due.
func (z *zone) release(now time.Time, dirty map[string]struct{}) {
	for z.queue.Len() > 0 && z.rate > 0 && !z.next.After(now) {
		e := z.queue.Front().Value.(*entry)
		z.unqueue(e)
		e.evict = true
		dirty[e.node.Name] = struct{}{}
		z.next = now.Add(time.Duration(float64(time.Second) / z.rate))
	}
}

func (z *zone) nextEviction() (time.Time, bool) {
	return z.next, z.queue.Len() > 0 && z.rate > 0
}

func (z *zone) unqueue(e *entry) {
	if e.queued != nil {
		z.queue.Remove(e.queued)
		e.queued = nil
	}
}

func zoneName(node *corev1.Node) string {
	region, zone := node.Labels[corev1.LabelTopologyRegion], node.Labels[corev1.LabelTopologyZone]
	if region == "" && zone == "" {
		return ""
	}
	return region + "/" + zone
}
