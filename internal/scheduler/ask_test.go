package scheduler

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/everynode/everynode/internal/fit"
	"github.com/everynode/everynode/internal/scheduler/placement"
)

// reserve asks for room for a pod that does not exist.
func (c *cluster) reserve(p *corev1.Pod) *Reservation {
	c.t.Helper()
	r, refusal := c.s.Reserve(c.t.Context(), p)
	if r == nil {
		c.t.Fatalf("there is no room for pod %s: %s", p.Name, refusal)
	}
	return r
}

func (c *cluster) expectRefusal(p *corev1.Pod, want Refusal) {
	c.t.Helper()
	if r, got := c.s.Reserve(c.t.Context(), p); r != nil || got != want {
		c.t.Errorf("pod %s gets %+v, %q, want %q", p.Name, r, got, want)
	}
}

// Room that is reserved is nobody else's, is counted once when the pod is seen, and is free again when the pod goes.
func TestReservedRoomIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, node("a", "2", "4Gi"))
		daemon := pod("daemon", pinnedTo("a"), requests("1500m", "1Gi"))
		r := c.reserve(daemon)
		if r.node.Name != "a" {
			t.Errorf("the room is on %q", r.node.Name)
		}
		c.create(pod("big", requests("1", "1Gi")), pod("small", requests("500m", "1Gi")))
		c.expectOn("big", "")
		c.expectOn("small", "a")
		c.expectRefusal(pod("other", pinnedTo("a"), requests("1", "1Gi")), NoRoom)

		daemon.Spec.NodeName = "a"
		c.create(daemon)
		r.Stored(t.Context(), daemon)
		c.settle()
		c.expectEvent("daemon", "default-scheduler Normal Scheduled: Successfully assigned default/daemon to a")
		if dump := c.s.loop.cluster.Dump(); !strings.Contains(dump, "pod default/daemon on a\n") ||
			!strings.Contains(dump, "cpu=2000m/2000m") {
			t.Errorf("it is counted as\n%s", dump)
		}
		time.Sleep(2 * seenWithin)
		c.expectOn("big", "")

		c.remove("daemon")
		time.Sleep(time.Second)
		c.settle()
		c.expectOn("big", "a")
	})
}

// What is counted of a pod that was created with its node is what is counted of one that was bound.
func TestReservedPodsCountAsScheduled(t *testing.T) {
	counts := map[string]string{}
	for _, way := range []string{"bound", "created with its node"} {
		synctest.Test(t, func(t *testing.T) {
			c := start(t, node("a", "2", "4Gi"))
			p := pod("daemon", pinnedTo("a"))
			if way == "bound" {
				c.create(p)
			} else {
				r := c.reserve(p)
				p.Spec.NodeName = r.node.Name
				c.create(p)
				r.Stored(t.Context(), p)
			}
			c.settle()
			c.expectOn("daemon", "a")
			counts[way] = c.counted() + strings.Join(c.events("daemon"), "\n")
		})
	}
	if counts["bound"] != counts["created with its node"] || !strings.Contains(counts["bound"], "result=scheduled} 1") {
		t.Errorf("counted are %q", counts)
	}
}

// Room goes back when the pod is refused, and when it is never seen. Nobody knows whether the first of two pods of one
// name was stored, also when the second is refused.
func TestRoomGoesBack(t *testing.T) {
	all := func(name string) *corev1.Pod { return pod(name, pinnedTo("a"), requests("2", "1Gi")) }
	for name, end := range map[string]func(*cluster, *Reservation){
		"refused":    func(_ *cluster, r *Reservation) { r.Refused() },
		"never seen": func(*cluster, *Reservation) { time.Sleep(seenWithin) },
		"stored, and never seen": func(c *cluster, r *Reservation) {
			r.Stored(c.t.Context(), all("daemon"))
			time.Sleep(seenWithin)
		},
		"made again, and refused": func(c *cluster, _ *Reservation) {
			again := all("daemon")
			again.UID = "another"
			c.reserve(again).Refused()
			time.Sleep(seenWithin)
		},
		"gone before it was seen to be there": func(c *cluster, _ *Reservation) {
			c.s.inbox.put(message{kind: kindPod, uid: "pod-daemon", object: all("daemon"), deleted: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := start(t, node("a", "2", "4Gi"))
				r := c.reserve(all("daemon"))
				c.create(all("waiting"))
				c.expectOn("waiting", "")
				end(c, r)
				time.Sleep(time.Second) // the back-off
				c.settle()
				c.expectOn("waiting", "a")
				if _, kept := c.s.loop.kept.Next(); kept {
					t.Error("a reservation is left")
				}
			})
		})
	}
}

// A pod whose write had no answer may be stored. Its room is kept, and a second try does not need it twice.
func TestSecondTryTakesTheRoomOfTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, node("a", "2", "4Gi"))
		first, second := pod("daemon", pinnedTo("a"), requests("2", "1Gi")), pod("daemon", pinnedTo("a"), requests("2", "1Gi"))
		second.UID = "second"
		c.reserve(first)
		c.expectRefusal(pod("other", pinnedTo("a"), requests("1", "1Gi")), NoRoom)
		r := c.reserve(second)
		first.Spec.NodeName = "a"
		c.create(first) // it was stored after all
		r.Refused()     // its name is taken
		c.settle()
		if dump := c.s.loop.cluster.Dump(); strings.Count(dump, "pod default/daemon on a") != 1 ||
			!strings.Contains(dump, "cpu=2000m/2000m") {
			t.Errorf("it is counted as\n%s", dump)
		}
	})
}

// A second try that ends in nothing says nothing of the first, which may be why: it may be stored, and not seen yet. Its
// room is nobody else's until then.
func TestSecondTryThatFailsLeavesTheRoomOfTheFirst(t *testing.T) {
	for name, end := range map[string]func(*cluster, *corev1.Pod){
		"its name is taken": func(c *cluster, second *corev1.Pod) { c.reserve(second).Refused() },
		"after a third": func(c *cluster, second *corev1.Pod) {
			third := second.DeepCopy()
			third.UID = "third"
			r := c.reserve(second)
			c.reserve(third).Refused()
			r.Refused()
		},
		"there is no room for it": func(c *cluster, second *corev1.Pod) {
			requests("3", "1Gi")(second)
			c.expectRefusal(second, NoRoom)
		},
		"nobody waits for it": func(c *cluster, second *corev1.Pod) {
			a := &ask{pod: fit.NewPod(second), since: time.Now(), answer: make(chan *Reservation, 1)}
			a.settled.Store(true)
			c.s.loop.answerTo(c.t.Context(), a)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := start(t, node("a", "2", "4Gi"))
				first, second := pod("daemon", pinnedTo("a"), requests("2", "1Gi")), pod("daemon", pinnedTo("a"), requests("2", "1Gi"))
				second.UID = "second"
				c.reserve(first) // no answer to its write
				c.create(pod("other", requests("1", "1Gi")))
				c.settle()
				end(c, second)
				c.create(pod("later", requests("1", "1Gi")))
				time.Sleep(seenWithin / 2)
				c.settle()
				c.expectOn("other", "")
				c.expectOn("later", "")
				first.Spec.NodeName = "a"
				c.create(first)
				time.Sleep(seenWithin)
				c.settle()
				c.expectOn("other", "")
				if dump := c.s.loop.cluster.Dump(); strings.Contains(dump, "assumed") || !strings.Contains(dump, "cpu=2000m/2000m") {
					t.Errorf("it is counted as\n%s", dump)
				}
				if _, kept := c.s.loop.kept.Next(); kept {
					t.Error("a reservation is left")
				}
			})
		})
	}
}

// What the scheduler would not give this very node without a write, or not at all, gets no room.
func TestWhoGetsNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		port := func(p *corev1.Pod) {
			p.Spec.HostNetwork = true
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80, ContainerPort: 80}}
		}
		claim := func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
		}
		c := start(t, node("a", "2", "4Gi"), node("b", "2", "4Gi"),
			node("tainted", "2", "4Gi", func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
			}),
			node("full", "2", "4Gi", func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("0") }))
		c.reserve(pod("port", pinnedTo("a"), port))
		for _, p := range []*corev1.Pod{
			pod("free", requests("1", "1Gi")),
			pod("missing", pinnedTo("missing")),
			pod("tainted", pinnedTo("tainted")),
			pod("full", pinnedTo("full")),
			pod("large", pinnedTo("a"), requests("3", "1Gi")),
			pod("port-2", pinnedTo("a"), port),
			pod("claim", pinnedTo("a"), claim),
			pod("selected", pinnedTo("a"), func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }),
			pod("two", pinnedTo("a"), func(p *corev1.Pod) {
				term := &p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0]
				term.MatchFields[0].Values = []string{"a", "b"}
			}),
			pod("device", pinnedTo("a"), func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "d"}} }),
			pod("gated", pinnedTo("a"), func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}} }),
			pod("other", pinnedTo("a"), func(p *corev1.Pod) { p.Spec.SchedulerName = "other" }),
			pod("there", pinnedTo("a"), func(p *corev1.Pod) { p.Spec.NodeName = "a" }),
		} {
			c.expectRefusal(p, NoRoom)
		}
		c.reserve(pod("port-b", pinnedTo("b"), port))
	})
}

// silentLoop is a scheduler of which only the loop's state works, for those who ask it by hand.
func silentLoop(t *testing.T) (*Scheduler, *clocktesting.FakeClock) {
	t.Helper()
	now := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	client := fake.NewClientset()
	s, err := New(Config{Informers: sharedInformers{informers.NewSharedInformerFactory(client, 0)}, Writer: NewWriter(client),
		Events: NewEventSink(client), Clock: now})
	if err != nil {
		t.Fatal(err)
	}
	return s, now
}

// Room is given in the order in which pods are scheduled: the more important first, then who came first.
func TestRoomGoesByTheOrderOfTheQueue(t *testing.T) {
	s, now := silentLoop(t)
	l := s.loop
	l.onNode(node("a", "1", "4Gi"), false)
	asked := func(name string, of int32) *ask {
		p := pod(name, pinnedTo("a"), priority(of))
		a := &ask{pod: fit.NewPod(p), since: now.Now(), answer: make(chan *Reservation, 1)}
		l.asks = append(l.asks, a)
		now.Step(time.Second)
		return a
	}
	waiting := func(name string, of int32) {
		l.onPod(pod(name, priority(of)), false)
		now.Step(time.Second)
	}
	asked("first", 0)
	waiting("second", 0)
	asked("third", 0)
	gone := asked("nobody waits for", 1000)
	gone.settled.Store(true)
	asked("important", 10)
	waiting("most important", 100)
	waiting("important, later", 10)
	var got []string
	for {
		if a := l.nextAsk(); a != nil {
			got = append(got, "room for "+a.pod.Name)
			continue
		}
		p := l.queue.Pop(now.Now())
		if p == nil {
			break
		}
		got = append(got, p.Name)
	}
	want := "most important, room for important, important, later, room for first, second, room for third"
	if strings.Join(got, ", ") != want {
		t.Errorf("the order is %s\nwant %s", strings.Join(got, ", "), want)
	}
}

// Nobody waits for a scheduler that does not answer, and who asks next does not even try. Room that comes too late is
// given back.
func TestSchedulerThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, node("a", "1", "4Gi"))
		c.s.atWork.Store(false)
		c.expectRefusal(pod("early", pinnedTo("a")), NotAtWork)
		c.s.atWork.Store(true)
		block := make(chan struct{})
		c.s.loop.follow = func() { <-block }
		c.create(pod("stops it", func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "d"}} }))

		begin := time.Now()
		c.expectRefusal(pod("first", pinnedTo("a"), requests("1", "1Gi")), NoAnswer)
		if took := time.Since(begin); took != answeredWithin {
			t.Errorf("it was waited for %v", took)
		}
		c.expectRefusal(pod("second", pinnedTo("a")), NoAnswer)
		if took := time.Since(begin); took != answeredWithin {
			t.Errorf("the next one waited, too: %v", took)
		}
		close(block)
		time.Sleep(silence)
		c.settle()
		c.reserve(pod("third", pinnedTo("a"), requests("1", "1Gi")))
	})
}

// Room that was found in the moment in which who asked went away is nobody's.
func TestRoomThatComesTooLate(t *testing.T) {
	s, now := silentLoop(t)
	l := s.loop
	l.onNode(node("a", "1", "4Gi"), false)
	late := &ask{pod: fit.NewPod(pod("p", pinnedTo("a"), requests("1", "1Gi"))), since: now.Now(),
		answer: make(chan *Reservation, 1)}
	late.settled.Store(true)
	l.answerTo(t.Context(), late)
	if _, kept := l.kept.Next(); kept || l.cluster.Holds("pod-p") || len(late.answer) > 0 {
		t.Errorf("it is kept: %s", l.cluster.Dump())
	}
}

// A claim to devices has to be written for the pod, also where it has its devices.
func TestNoRoomForThoseWithDevices(t *testing.T) {
	s, now := silentLoop(t)
	l := s.loop
	l.onNode(node("a", "1", "4Gi"), false)
	l.devices.Known()
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c", UID: "c"}}
	c.Status.Allocation = &resourcev1.AllocationResult{}
	l.onDevices(message{object: c})
	p := pod("p", pinnedTo("a"), func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimName: &c.Name}}
	})
	if l.placer.Place(fit.NewPod(p), placement.View{Cluster: l.cluster, Nominated: l.nominated}).Node != "a" {
		t.Fatal("the pod does not fit in any case")
	}
	if r := l.reserve(&ask{pod: fit.NewPod(p), since: now.Now()}); r != nil {
		t.Errorf("it gets room on %s", r.node.Name)
	}
}

// Who asks may be told to stop.
func TestWhoAsksMayStop(t *testing.T) {
	s, _ := silentLoop(t)
	s.atWork.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, why := s.Reserve(ctx, pod("p", pinnedTo("a"))); r != nil || why != NoAnswer {
		t.Errorf("got %v, %s", r, why)
	}
	if s.silentUntil.Load() != 0 {
		t.Error("the scheduler is taken to be silent")
	}
	s.loop.drain(t.Context())
	if a := s.loop.nextAsk(); a != nil {
		t.Error("a question that nobody waits for is answered")
	}
}
