package illness

import (
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Patient is one simulated node, ill or not. It remembers since when which fault concerns it.
type Patient struct {
	plan *Plan
	name string
	// own is the fault of the node's annotation, noted the text that it was read from; spared: from all faults.
	own    *Fault
	noted  string
	spared bool
	labels labels.Set
	since  map[*Fault]time.Time
	// deadly are the containers that kill the node, by the UID of their pod.
	deadly map[string]death
}

// death is when a node dies of a container: some time after the container started.
type death struct {
	started      time.Time
	after, lasts time.Duration
}

// State is how a node is at one moment. The zero value is well.
type State struct {
	// Silent nodes neither renew their lease nor do anything for their pods.
	Silent bool
	// Off says that the node is silent for want of power: its containers do not outlast that.
	Off bool
	// NotReady is why the node is not ready; empty if it is.
	NotReady string
	// Pressure is what the node is short of.
	Pressure Shortage
	// Maintenance, unless nil, is what it says of work on it.
	Maintenance *Maintenance
	// Room, unless nil, is what it offers to pods.
	Room *Room
	// NoResize is why pods that run are given no other amounts; empty if they are.
	NoResize string
	// Next is when that changes by itself; zero if it does not.
	Next time.Time
}

// Shortage is what a node is short of.
type Shortage struct{ Memory, Disk, PID bool }

// NewPatient returns the node of that name. Plan may be nil.
func NewPatient(plan *Plan, name string) *Patient {
	return &Patient{plan: plan, name: name}
}

// Ails reports whether anything can be the matter with the node; if not, nothing else need be asked.
func (p *Patient) Ails() bool {
	return p.own != nil || len(p.deadly) > 0 || p.plan != nil && len(p.plan.Faults) > 0
}

// Read takes in the node's labels and annotations. A value of Annotation that cannot be read is an error, returned
// once, and counts as none.
func (p *Patient) Read(nodeLabels, annotations map[string]string, now time.Time) error {
	var err error
	if text := annotations[Annotation]; text != p.noted {
		p.noted, p.own, p.spared = text, nil, text == none
		if text != "" && text != none {
			p.own, err = parseAnnotation(text)
		}
	}
	p.labels = nodeLabels
	since := map[*Fault]time.Time{}
	p.each(func(f *Fault) {
		if !p.taken(f) {
			return
		}
		since[f] = now
		if before, ok := p.since[f]; ok {
			since[f] = before
		}
	})
	p.since = since
	return err
}

// each calls do with all faults that could concern the node, its own first.
func (p *Patient) each(do func(*Fault)) {
	if p.spared {
		return
	}
	if p.own != nil {
		do(p.own)
	}
	if p.plan == nil {
		return
	}
	for i := range p.plan.Faults {
		do(&p.plan.Faults[i])
	}
}

// taken reports whether the fault means the node, by its labels and the fault's share.
func (p *Patient) taken(f *Fault) bool {
	return f.nodes.Matches(p.labels) && (f.share >= 1 || p.chance(f) < f.share)
}

// chance is a number from 0 to below 1 that the seed gives to this node for this fault.
func (p *Patient) chance(f *Fault) float64 {
	seed := uint64(0)
	if p.plan != nil {
		seed = p.plan.Seed
	}
	h := fnv.New64a()
	for _, part := range []string{strconv.FormatUint(seed, 10), f.Name, p.name} {
		_, _ = h.Write([]byte(part)) // It never fails.
		_, _ = h.Write([]byte{0})
	}
	// FNV's last bytes hardly reach the upper bits, which a fraction is made of.
	x := h.Sum64()
	x ^= x >> 32
	x *= 0x9e3779b97f4a7c15
	x ^= x >> 29
	return float64(x>>11) / (1 << 53)
}

// Look says how the node is.
func (p *Patient) Look(now time.Time) State {
	var s State
	p.each(func(f *Fault) {
		if since, concerned := p.since[f]; concerned {
			p.suffer(&s, f, since, now)
		}
	})
	if p.spared {
		return s
	}
	for _, d := range p.deadly {
		if s.inTurn(d.started, d.after, d.after+d.lasts, now) {
			s.Silent, s.Off = true, true
		}
	}
	return s
}

// suffer adds what a fault does to the node.
func (p *Patient) suffer(s *State, f *Fault, since, now time.Time) {
	switch {
	case f.NotReady != nil:
		if s.in(&f.NotReady.Span, since, now) && s.NotReady == "" {
			s.NotReady = f.NotReady.Message
		}
	case f.Pressure != nil:
		if s.in(&f.Pressure.Span, since, now) {
			s.Pressure.Memory = s.Pressure.Memory || f.Pressure.Of == "memory"
			s.Pressure.Disk = s.Pressure.Disk || f.Pressure.Of == "disk"
			s.Pressure.PID = s.Pressure.PID || f.Pressure.Of == "pid"
		}
	case f.Flaps != nil:
		period := f.Flaps.Up.Duration + f.Flaps.Down.Duration
		offset := time.Duration(p.chance(f) * float64(f.Flaps.Up.Duration))
		s.Silent = s.inTurn(since.Add(-offset), f.Flaps.Up.Duration, period, now) || s.Silent
	case f.PowerLoss != nil:
		if s.in(f.PowerLoss, since, now) {
			s.Silent, s.Off = true, true
		}
	default:
		s.lack(f, since, now)
	}
}

// lack adds what a fault has the node do without, and what it says of work on it. It answers all the same.
func (s *State) lack(f *Fault, since, now time.Time) {
	switch {
	case f.Maintenance != nil:
		if s.in(&f.Maintenance.Span, since, now) && s.Maintenance == nil {
			s.Maintenance = f.Maintenance
		}
	case f.Room != nil && s.Room == nil:
		s.Room = f.Room
	case f.NoResize != nil && s.NoResize == "":
		s.NoResize = f.NoResize.Message
	}
}

// in reports whether now is in the span, and notes when that changes.
func (s *State) in(span *Span, since, now time.Time) bool {
	begin := since.Add(span.After.Duration)
	if now.Before(begin) {
		s.changes(begin)
		return false
	}
	if span.For.Duration == 0 {
		return true
	}
	end := begin.Add(span.For.Duration)
	if now.Before(end) {
		s.changes(end)
		return true
	}
	return false
}

// inTurn reports whether now is in the later part of its period, which begins after up; a period that is no longer than
// that never ends. It notes when that changes.
func (s *State) inTurn(since time.Time, up, period time.Duration, now time.Time) bool {
	gone := now.Sub(since)
	if period > up && gone >= 0 {
		turn := gone % period
		since, gone = now.Add(-turn), turn
	}
	if gone < up {
		s.changes(since.Add(up))
		return false
	}
	if period > up {
		s.changes(since.Add(period))
	}
	return true
}

func (s *State) changes(at time.Time) {
	if s.Next.IsZero() || at.Before(s.Next) {
		s.Next = at
	}
}

// Dies notes that the node dies of a container that was started then. It reports whether that was new.
func (p *Patient) Dies(podUID string, c Container) bool {
	if _, known := p.deadly[podUID]; known {
		return false
	}
	if p.deadly == nil {
		p.deadly = map[string]death{}
	}
	p.deadly[podUID] = death{started: c.Started, after: given(c.kills.After, defaultDeath), lasts: c.kills.For.Duration}
	return true
}

// Survives notes that the pod is gone. A node that died of it for ever stays dead.
func (p *Patient) Survives(podUID string, now time.Time) {
	if d, known := p.deadly[podUID]; known && (d.lasts > 0 || now.Before(d.started.Add(d.after))) {
		delete(p.deadly, podUID)
	}
}

// defaultDeath is how long a node lives with what kills it.
const defaultDeath = 2 * time.Minute

// Container is what ails one container. The zero value is well.
type Container struct {
	// Ends says that it ends After each start, with the exit code, reason and last words.
	Ends            bool
	After           time.Duration
	ExitCode        int32
	Reason, Message string
	times           int
	// ReadyAfter is how long after its start it is ready.
	ReadyAfter time.Duration
	// Unready is why its probes fail; empty if they do not.
	Unready string
	// TaskTakes is how long its work takes, if it has an end.
	TaskTakes time.Duration
	// PullTakes is how long its pull takes, PullError why it fails, StartError why it cannot be started.
	PullTakes             time.Duration
	PullError, StartError string
	// Started is for the caller to fill in.
	Started time.Time
	kills   *KillsNode
}

// EndsAt reports whether it ends by itself after it was started for the time of that number, from 0.
func (c *Container) EndsAt(attempt uint32) bool {
	return c.Ends && (c.times == 0 || attempt < uint32(c.times)) //nolint:gosec // It is not negative.
}

// Kills reports whether the node dies of the container.
func (c *Container) Kills() bool { return c.kills != nil }

// Ward is what ails the pods of one node.
type Ward struct {
	faults []*Fault
	chance func(*Fault) float64
	// Content is what the pod reads from ConfigMaps, for the caller to fill in where Reads says so.
	Content []map[string]string
}

// Reads reports whether what the pod reads can make it ill.
func (w *Ward) Reads() bool {
	return w != nil && slices.ContainsFunc(w.faults, func(f *Fault) bool { return f.BadContent != nil })
}

// Ward returns what ails the pod on this node; nil if nothing can. The annotation of a pod that cannot be read is an
// error.
func (p *Patient) Ward(pod *corev1.Pod) (*Ward, error) {
	text := pod.Annotations[Annotation]
	if text == "" && !p.Ails() || p.spared {
		return nil, nil
	}
	w := &Ward{chance: p.chance}
	p.each(func(f *Fault) {
		if _, concerned := p.since[f]; concerned && !f.ofNode() {
			w.faults = append(w.faults, f)
		}
	})
	if text == "" || text == none {
		return w, nil
	}
	f, err := parseAnnotation(text)
	switch {
	case err != nil:
		return w, err
	case f.ofNode():
		return w, errOfNode(f)
	case p.taken(f):
		w.faults = append(w.faults, f)
	}
	return w, nil
}

// Container says what ails a container of the pod; init containers must be named by the fault. A nil ward has no ill
// ones.
func (w *Ward) Container(pod *corev1.Pod, spec *corev1.Container) Container {
	var c Container
	if w == nil || spec == nil {
		return c
	}
	init := slices.ContainsFunc(pod.Spec.InitContainers, func(i corev1.Container) bool { return i.Name == spec.Name })
	for _, f := range w.faults {
		named := f.Pods != nil && f.Pods.Container != ""
		if f.Pods.matches(pod, spec) && (named || !init) && !f.Memory.spares(spec) {
			f.afflict(&c, w.Content)
			if f.SlowStart != nil && c.ReadyAfter == 0 {
				c.ReadyAfter = f.SlowStart.on(w.chance(f))
			}
		}
	}
	return c
}
