package history

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history/wish"
)

// fetchingFleet is a guidedFleet whose nodes fetch images, in a canary and then in racks: n2 and n3 are one's.
func fetchingFleet(change ...func(*v1alpha1.RolloutPolicy)) *guidedStory {
	racks := v1alpha1.Wave{Name: "racks", Each: "rack", Fetch: true}
	s := guidedFleet(append([]func(*v1alpha1.RolloutPolicy){func(p *v1alpha1.RolloutPolicy) {
		p.Spec.Domains, p.Spec.Waves[0].Approval, p.Spec.Waves[0].Fetch = nil, "", true
		p.Spec.Waves = append(p.Spec.Waves, racks)
	}}, change...)...)
	s.rollout.Status.StepStarted = ptr.To(metav1.NewTime(s.now))
	s.rollout.Status.Steps = []v1alpha1.StepStatus{{Name: "canary", Nodes: 1}, {Name: "racks/r", Nodes: 2}, {Name: "racks/(none)", Nodes: 1}}
	s.record.Events[len(s.record.Events)-1].Object = s.rollout.DeepCopy()
	return s
}

// asks has a node be asked for the images of a revision, and answers say what it has.
func (s *guidedStory) asks(node int, revision string) {
	text, err := json.Marshal(map[string]any{"revision": revision, "at": s.now, "images": []any{}})
	if err != nil {
		panic(err)
	}
	p := s.pods[node-1]
	p.Annotations["everynode.io/fetch-images"] = string(text)
	s.put(p)
	s.record.Writes = append(s.record.Writes, Write{Kind: "Pod", Name: p.Name, UID: "any"})
}

func (s *guidedStory) answers(node int, revision string, status corev1.ConditionStatus, why string) {
	s.asks(node, revision)
	p := s.pods[node-1]
	var asked struct{ At time.Time }
	err := json.Unmarshal([]byte(p.Annotations["everynode.io/fetch-images"]), &asked)
	if err != nil {
		panic(err)
	}
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
		Type: "everynode.io/ImagesFetched", Status: status,
		Message: revision + " of " + asked.At.UTC().Format(time.RFC3339Nano) + why,
	})
	s.put(p)
}

func (s *guidedStory) has(nodes ...int) {
	for _, n := range nodes {
		s.answers(n, "hash-t2", corev1.ConditionTrue, "")
	}
}

// pulls has a pod pull the images of a revision on a node: an image is there, or why it waits for one.
func (s *guidedStory) pulls(node int, revision, image, waits string) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprint("pulls-", node), UID: types.UID(fmt.Sprint("pulls-", node, revision)),
		Labels:      map[string]string{"everynode.io/fetches-after": string(s.pods[node-1].UID)},
		Annotations: map[string]string{"everynode.io/fetches-revision": revision},
	}}
	p.Spec.Containers = []corev1.Container{{Name: "image-0"}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{ImageID: image}}
	if waits != "" {
		p.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: waits}
	}
	s.put(p)
}

// racks has the canary be changed, and the first rack begin.
func (s *guidedStory) racks() *guidedStory {
	s.has(1)
	s.changes(1, true)
	s.rackBegins()
	return s
}

func (s *guidedStory) rackBegins() {
	s.rollout.Status.StepStarted = ptr.To(metav1.NewTime(s.now))
	s.rollout.Status.Step = "racks/r"
	s.put(s.rollout)
}

// node changes a node.
func (s *guidedStory) node(number int, change func(*corev1.Node)) {
	name := fmt.Sprintf("n%d", number)
	for i := len(s.record.Events) - 1; i >= 0; i-- {
		if n, is := s.record.Events[i].Object.(*corev1.Node); is && n.Name == name {
			n = n.DeepCopy()
			change(n)
			s.put(n)
			return
		}
	}
}

// TestJudgeOfImagesBeforeTheirTurn tells histories of waves whose nodes fetch images.
func TestJudgeOfImagesBeforeTheirTurn(t *testing.T) {
	soon := func(p *v1alpha1.RolloutPolicy) {
		for i := range p.Spec.Waves {
			p.Spec.Waves[i].FetchDeadline = "2m"
		}
	}
	condition := func(of corev1.NodeConditionType, status corev1.ConditionStatus) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Status.Conditions = append([]corev1.NodeCondition{{Type: of, Status: status}}, n.Status.Conditions...)
		}
	}
	const noAnswer = Unfetched + ": node n1 lost its daemon, and has not said that it has the images; it could be asked since "
	for _, c := range []struct {
		name string
		tell func() *guidedStory
		want string
		// fetched is how many daemons went whose nodes had the images.
		fetched int
	}{
		{"all have the images", func() *guidedStory {
			s := fetchingFleet().racks()
			s.has(2, 3)
			s.changes(2, true)
			return s
		}, "", 2},
		{"a canary that was not asked", func() *guidedStory { s := fetchingFleet(); s.takes(1); return s }, noAnswer, 0},
		{"a canary that a pod pulled them on", func() *guidedStory {
			s := fetchingFleet()
			s.pulls(1, "hash-t2", "image", "")
			s.takes(1)
			return s
		}, "", 1},
		{"a canary that a pod pulls them on", func() *guidedStory {
			s := fetchingFleet()
			s.pulls(1, "hash-t2", "", "")
			s.takes(1)
			return s
		}, noAnswer, 0},
		{"a canary that a pod could not pull them on", func() *guidedStory {
			s := fetchingFleet()
			s.pulls(1, "hash-t2", "", "ErrImagePull")
			s.takes(1)
			return s
		}, noAnswer, 0},
		{"a canary that a pod pulled others on", func() *guidedStory {
			s := fetchingFleet()
			s.pulls(1, "hash-t3", "image", "")
			s.takes(1)
			return s
		}, noAnswer, 0},
		{"another node of the step that a pod could not pull them on", func() *guidedStory {
			s := fetchingFleet().racks()
			s.pulls(2, "hash-t2", "image", "")
			s.pulls(3, "hash-t2", "", "ErrImagePull")
			s.takes(2)
			return s
		}, "", 2},
		{"a canary that was not asked, and had other labels before", func() *guidedStory {
			s := fetchingFleet()
			s.node(1, func(n *corev1.Node) { n.Labels["class"] = "m" })
			s.takes(1)
			return s
		}, noAnswer, 0},
		{"a node with other labels, before the status tells of its step", func() *guidedStory {
			s := fetchingFleet()
			s.has(1)
			s.changes(1, true)
			s.node(2, func(n *corev1.Node) { n.Labels["class"] = "m" })
			s.takes(2)
			return s
		}, "", 1},
		{"a canary that has not answered", func() *guidedStory {
			s := fetchingFleet()
			s.asks(1, "hash-t2")
			s.takes(1)
			return s
		}, noAnswer, 0},
		{"a canary that has the images of another revision", func() *guidedStory {
			s := fetchingFleet()
			s.answers(1, "hash-t3", corev1.ConditionTrue, "")
			s.takes(1)
			return s
		}, noAnswer, 0},
		{"a canary that is asked again", func() *guidedStory {
			s := fetchingFleet()
			s.has(1)
			s.asks(1, "hash-t2")
			s.takes(1)
			return s
		}, noAnswer, 0},
		{"a canary that may not read the new pull secrets", func() *guidedStory {
			s := fetchingFleet()
			s.answers(1, "hash-t2", corev1.ConditionUnknown, ": pull secret x")
			s.takes(1)
			return s
		}, "", 1},
		{"a canary that has the images of the template with other content", func() *guidedStory {
			s := fetchingFleet()
			s.answers(1, "hash-t2.abc", corev1.ConditionTrue, "")
			s.takes(1)
			return s
		}, "", 1},
		{"a canary that was waited for", func() *guidedStory {
			s := fetchingFleet(soon)
			s.asks(1, "hash-t2")
			s.now = s.now.Add(2 * time.Minute)
			s.takes(1)
			return s
		}, "", 0},
		{"a canary that cannot have them", func() *guidedStory {
			s := fetchingFleet(soon)
			s.answers(1, "hash-t2", corev1.ConditionFalse, ": no space")
			s.now = s.now.Add(2 * time.Minute)
			s.takes(1)
			return s
		}, Unfetched + ": node n1 lost its daemon, and said that it cannot have the images", 0},
		{"a canary whose daemon does not work", func() *guidedStory {
			s := fetchingFleet()
			s.pods[0].Status.Conditions[0].Status = corev1.ConditionFalse
			s.put(s.pods[0])
			s.takes(1)
			return s
		}, "", 0},
		{"a wave without fetching", func() *guidedStory {
			s := fetchingFleet(func(p *v1alpha1.RolloutPolicy) { p.Spec.Waves[0].Fetch = false })
			s.takes(1)
			return s
		}, "", 0},
		{"a controller that asks nobody", func() *guidedStory {
			s := fetchingFleet()
			s.rollout.Status.Fetch = &v1alpha1.FetchStatus{Message: v1alpha1.NoFetch}
			s.put(s.rollout)
			s.takes(1)
			return s
		}, "", 0},
		{"the target does not want the daemon there", func() *guidedStory {
			s := fetchingFleet()
			s.edit(func(d *appsv1.DaemonSet) {
				template("t3")(d)
				d.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "typo"}
			})
			s.put(s.revision(3))
			s.status(v1alpha1.PhaseProgressing, "t1", "t3", "canary")
			s.takes(1)
			return s
		}, "", 0},
		{"on the way back", func() *guidedStory {
			s := fetchingFleet()
			s.has(1)
			s.changes(1, true)
			s.rollout.Status.Message = "soaks"
			s.put(s.rollout)
			s.failed(v1alpha1.PhaseRolledBack)
			for i := len(s.record.Events) - 1; i >= 0; i-- {
				if p, is := s.record.Events[i].Object.(*corev1.Pod); is && p.Name == "new-1" {
					s.deleted(p.DeepCopy())
					break
				}
			}
			return s
		}, "", 1},
		{"the next step fetches while this one soaks", func() *guidedStory {
			s := fetchingFleet(soon)
			s.has(1)
			s.changes(1, true)
			s.asks(2, "hash-t2")
			s.asks(3, "hash-t2")
			s.now = s.now.Add(90 * time.Second)
			s.rackBegins()
			s.takes(2)
			return s
		}, "", 1},
		{"another node of the step was not asked", func() *guidedStory {
			s := fetchingFleet().racks()
			s.has(2)
			s.takes(2)
			return s
		}, Unfetched + ": node n2 lost its daemon, and node n3 of the same step has not answered; it could be asked since ", 1 + 1},
		{"another node of a step that the status does not tell of yet was not asked", func() *guidedStory {
			s := fetchingFleet()
			s.has(1)
			s.changes(1, true)
			s.has(2)
			s.takes(2)
			return s
		}, Unfetched + ": node n2 lost its daemon, and node n3 of the same step has not answered; it could be asked since ", 2},
		{"another node of the step cannot have them", func() *guidedStory {
			s := fetchingFleet().racks()
			s.has(2)
			s.answers(3, "hash-t2", corev1.ConditionFalse, ": no space")
			s.takes(2)
			return s
		}, "", 2},
		{"another node of the step was waited for", func() *guidedStory {
			s := fetchingFleet(soon).racks()
			s.has(2)
			s.now = s.now.Add(2 * time.Minute)
			s.takes(2)
			return s
		}, "", 2},
		{"another node of the step is in maintenance", func() *guidedStory {
			s := fetchingFleet().racks()
			s.node(3, condition("Drained", corev1.ConditionTrue))
			s.has(2)
			s.takes(2)
			return s
		}, "", 2},
		{"another node of the step was out of order", func() *guidedStory {
			s := fetchingFleet().racks()
			s.node(3, func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
			s.has(2)
			s.takes(2)
			return s
		}, "", 2},
		{"another node of the step has no daemon that works", func() *guidedStory {
			s := fetchingFleet().racks()
			s.pods[2].Status.Conditions[0].Status = corev1.ConditionFalse
			s.put(s.pods[2])
			s.has(2)
			s.takes(2)
			return s
		}, "", 2},
		{"another node of the step was not asked, and the next step has begun", func() *guidedStory {
			s := fetchingFleet().racks()
			s.rollout.Status.Step = "racks/(none)"
			s.put(s.rollout)
			s.has(2)
			s.takes(2)
			return s
		}, "", 2},
		{"another node of another step was not asked", func() *guidedStory {
			s := fetchingFleet().racks()
			s.has(2, 3)
			s.takes(2)
			return s
		}, "", 2},
		{"the policy was edited in the middle", func() *guidedStory {
			s := fetchingFleet().racks()
			s.policy.Spec.Waves[1].FetchDeadline = "9m"
			s.put(s.policy)
			s.record.Writes = append(s.record.Writes, Write{Kind: "RolloutPolicy", Name: "policy", UID: "policy", Wish: wish.Of(s.policy)})
			s.has(2)
			s.takes(2)
			return s
		}, "", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := c.tell()
			expect(t, s, c.want)
			if _, fetched := Check(s.record); fetched != c.fetched {
				t.Errorf("it counts %d daemons whose nodes had the images, want %d", fetched, c.fetched)
			}
		})
	}
}

// TestADaemonThatIsGoneIsKnownNoMore, once the controller has heard of that, or another one has begun since.
func TestADaemonThatIsGoneIsKnownNoMore(t *testing.T) {
	for name, c := range map[string]struct {
		// when it ended for the controller, since the daemon's end, by which version; none for 0
		after, version int64
		known          bool
	}{
		"it is not heard of":                    {known: true},
		"it is heard of":                        {after: 2, version: 7},
		"another controller has begun since":    {after: 2},
		"another controller had begun before":   {after: -1, known: true},
		"it is heard of when it does not count": {after: 9 * lag, version: 7, known: true},
	} {
		s := guidedFleet()
		old := s.pods[1]
		s.record.Told = true
		last := func() int64 { return s.record.Events[len(s.record.Events)-1].Revision }
		see := func(uid types.UID) {
			s.record.Sights = append(s.record.Sights, Sight{UID: uid, At: last(), Version: last()})
		}
		see(old.UID)
		s.gone(old)
		gone := last()
		next := old.DeepCopy()
		next.Name, next.UID = "next", "next"
		s.put(next)
		see(next.UID)
		if c.after != 0 {
			s.record.Ends = append(s.record.Ends, Sight{UID: old.UID, At: gone + c.after, Version: c.version})
		}
		j := newJudge(s.record)
		got := j.daemonsOf(decision{at: place{ownerOf(old), "n2"}, event: last() + 20}, last()+5)
		known := slices.ContainsFunc(got, func(p *corev1.Pod) bool { return p.UID == old.UID })
		if known != c.known || !slices.ContainsFunc(got, func(p *corev1.Pod) bool { return p.UID == next.UID }) {
			t.Errorf("%s: of %d daemons it is known: %v", name, len(got), known)
		}
	}
}
