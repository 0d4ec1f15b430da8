package podworker

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// Pending is why a pod was not given more or less CPU and memory; the zero value is a pod that has what it asks for.
// Reason is Deferred, if there may be room later, or Infeasible.
type Pending struct{ Reason, Message string }

// ResizeFailed is the outcome of a resize that the runtime did not do.
const ResizeFailed = "ResizeFailed"

// sizes is what is known of the CPU and memory of running containers.
type sizes struct {
	// given are the resources that containers were given while they ran, by ID. Those of before a restart of the agent are
	// recalled.
	given    map[string]corev1.ResourceRequirements
	recalled bool
	// room are the resources, by container, that the pod as a whole was last given; nil while nobody knows, as after a
	// restart of the agent.
	room map[string]corev1.ResourceRequirements
	// widened says that the pod as a whole has room for what its containers had and are to have, which are wanted.
	widened bool
	wanted  map[string]corev1.ResourceRequirements
	retry   retry
	// failed is what was wanted when the last step failed.
	failed map[string]corev1.ResourceRequirements
}

// RecallSizes takes what the API says that running containers have: the runtime knows what they were made with. It is
// called with what the agent finds when it starts to look after the pod.
func (m *Memory) RecallSizes(pod *corev1.Pod, rt *Runtime) {
	if m.sizes.recalled || pod == nil || rt == nil {
		return
	}
	m.sizes.recalled = true
	under := findCondition(pod.Status.Conditions, corev1.PodResizeInProgress)
	m.sizes.widened = under != nil && under.Status == corev1.ConditionTrue
	for i := range rt.Containers {
		c := &rt.Containers[i]
		if s := statusOf(pod, c.Name); c.State == Running && s != nil && s.Resources != nil &&
			s.ContainerID == runtimeScheme+c.ID {
			m.sizes.give(c.ID, *s.Resources)
		}
	}
}

// change is what it takes to give a container other resources.
type change uint8

const (
	none change = iota
	inPlace
	restart
)

// of are the CPU and memory that the container has, with everything else that the spec asks for.
func (s *sizes) of(spec *corev1.Container, c *Container) *corev1.ResourceRequirements {
	out := spec.Resources.DeepCopy()
	has := s.recorded(c)
	if has == nil {
		return out
	}
	out.Requests, out.Limits = podfacts.WithCompute(out.Requests, has.Requests), podfacts.WithCompute(
		out.Limits, has.Limits,
	)
	return out
}

func (s *sizes) recorded(c *Container) *corev1.ResourceRequirements {
	if given, ok := s.given[c.ID]; ok {
		return &given
	}
	return c.Resources
}

// differs says what it takes to give the container the resources of its spec.
func (s *sizes) differs(spec *corev1.Container, c *Container) change {
	has := s.recorded(c)
	if has == nil || podfacts.SameCompute(has, &spec.Resources) {
		return none
	}
	for _, p := range spec.ResizePolicy {
		if p.RestartPolicy == corev1.RestartContainer && !same(p.ResourceName, has, &spec.Resources) {
			return restart
		}
	}
	return inPlace
}

func same(name corev1.ResourceName, a, b *corev1.ResourceRequirements) bool {
	for _, lists := range [][2]corev1.ResourceList{{a.Requests, b.Requests}, {a.Limits, b.Limits}} {
		x, y := lists[0][name], lists[1][name]
		if x.Cmp(y) != 0 {
			return false
		}
	}
	return true
}

func (s *sizes) done(a Action, o Outcome, now time.Time) {
	if o.Failed() {
		if !equal(s.failed, a.wanted) {
			s.retry = retry{}
		}
		s.failed = a.wanted
	}
	settle(&s.retry, o, now)
	if o.Failed() {
		return
	}
	switch a.Kind {
	case WidenPod:
		s.widened, s.wanted = true, a.wanted
	case NarrowPod:
		s.made(a.wanted)
		s.given = a.kept
	default:
		s.give(a.ContainerID, a.wanted[a.Container])
	}
}

func (s *sizes) give(id string, resources corev1.ResourceRequirements) {
	if s.given == nil {
		s.given = map[string]corev1.ResourceRequirements{}
	}
	s.given[id] = resources
}

// made says that the pod as a whole has room for these.
func (s *sizes) made(room map[string]corev1.ResourceRequirements) {
	s.room, s.widened, s.wanted = room, false, nil
}

// wantedSizes are the resources of all containers that can be resized, whether they run or not: the pod as a whole
// needs room for those as well that are yet to start.
func wantedSizes(pod *corev1.Pod) map[string]corev1.ResourceRequirements {
	out := make(map[string]corev1.ResourceRequirements, len(pod.Spec.Containers))
	for i := range pod.Spec.Containers {
		out[pod.Spec.Containers[i].Name] = pod.Spec.Containers[i].Resources
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; podfacts.IsSidecar(c) {
			out[c.Name] = c.Resources
		}
	}
	return out
}

// hasRoom says whether the pod as a whole was given what its containers are to have. Where nobody knows, it has what
// they were last made with.
func (s *sizes) hasRoom(rt *Runtime, wanted map[string]corev1.ResourceRequirements) bool {
	if s.room != nil {
		return equal(s.room, wanted)
	}
	for name, want := range wanted {
		has := &corev1.ResourceRequirements{}
		if last := rt.newest(name); last != nil {
			if has = s.recorded(last); has == nil {
				continue
			}
		}
		if !podfacts.SameCompute(has, &want) {
			return false
		}
	}
	return true
}

// compare returns the running containers that have other resources than they are to have, and what the others were
// given, by ID.
func (s *sizes) compare(in *Input,
	wanted map[string]corev1.ResourceRequirements) (differ []*Container, kept map[string]corev1.ResourceRequirements) {
	kept = map[string]corev1.ResourceRequirements{}
	for i := range in.Runtime.Containers {
		c := &in.Runtime.Containers[i]
		if _, ok := wanted[c.Name]; !ok || c.State != Running {
			continue
		}
		if spec, _ := findContainer(in.Pod, c.Name); s.differs(spec, c) != none {
			differ = append(differ, c)
		} else if given, ok := s.given[c.ID]; ok {
			kept[c.ID] = given
		}
	}
	return differ, kept
}

// resize gives containers that run the CPU and memory of their spec: the pod as a whole gets room first, and is left
// what it needs when all have theirs. It says whether nothing was begun.
func (d *decider) resize() bool {
	s, wanted := &d.mem.sizes, wantedSizes(d.in.Pod)
	differ, kept := s.compare(d.in, wanted)
	switch {
	case len(differ) == 0 && !s.widened && s.hasRoom(d.in.Runtime, wanted):
		return true
	case equal(s.failed, wanted) && d.waiting(&s.retry):
		return true
	case !s.widened || !equal(s.wanted, wanted):
		d.act(Action{Kind: WidenPod, wanted: wanted})
	case len(differ) == 0:
		d.act(Action{Kind: NarrowPod, wanted: wanted, kept: kept})
	default:
		c := differ[0]
		if spec, _ := findContainer(d.in.Pod, c.Name); s.differs(spec, c) == restart {
			d.kill(c, KillResized, fmt.Sprintf("Container %s resize requires restart", c.Name), d.graceFor(c, KillResized))
			return true
		}
		d.act(Action{Kind: ResizeContainer, Container: c.Name, ContainerID: c.ID, wanted: wanted})
	}
	return false
}

func equal(a, b map[string]corev1.ResourceRequirements) bool {
	if len(a) != len(b) {
		return false
	}
	for name, x := range a {
		if y, ok := b[name]; !ok || !podfacts.SameCompute(&x, &y) {
			return false
		}
	}
	return true
}

// resizing are the conditions of a pod whose containers are to have other CPU or memory than they have.
func (b *statusBuilder) resizing() []corev1.PodCondition {
	var out []corev1.PodCondition
	if p := b.in.Pending; p.Reason != "" {
		out = append(out, corev1.PodCondition{
			Type:    corev1.PodResizePending,
			Status:  corev1.ConditionTrue,
			Reason:  p.Reason,
			Message: p.Message,
		})
	}
	s := &b.in.Memory.sizes
	failed := s.retry.message != "" && equal(s.failed, wantedSizes(b.in.Pod))
	under := s.widened || failed
	for i := range b.in.Runtime.Containers {
		c := &b.in.Runtime.Containers[i]
		spec, _ := findContainer(b.in.Pod, c.Name)
		under = under || c.State == Running && spec != nil && s.differs(spec, c) != none
	}
	if under {
		c := corev1.PodCondition{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue}
		if failed {
			c.Reason, c.Message = corev1.PodReasonError, s.retry.message
		}
		out = append(out, c)
	}
	return out
}
