package plan

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func makePod(name, node string, phase corev1.PodPhase, deleting bool) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(epoch)},
		Spec:       corev1.PodSpec{NodeName: node},
		Status:     corev1.PodStatus{Phase: phase},
	}
	if deleting {
		p.DeletionTimestamp = &metav1.Time{Time: epoch}
	}
	return p
}

func describe(doomed []Doomed) []string {
	list := []string{}
	for _, d := range doomed {
		list = append(list, fmt.Sprintf("%s: %s", d.Pod.Name, d.Reason))
	}
	slices.Sort(list)
	return list
}

func only(nodes ...string) func(string) bool {
	return func(name string) bool { return slices.Contains(nodes, name) }
}

func expect(t *testing.T, got []Doomed, want ...string) {
	t.Helper()
	if !slices.Equal(describe(got), append([]string{}, want...)) {
		t.Errorf("doomed %q, want %q", describe(got), want)
	}
}

func TestOrdinaryPodsStay(t *testing.T) {
	m := NewMissing(Config{})
	doomed, next := m.Sweep([]*corev1.Pod{
		makePod("running", "n", corev1.PodRunning, false),
		makePod("ending", "n", corev1.PodRunning, true),
		makePod("waiting", "", corev1.PodPending, false),
		makePod("done", "n", corev1.PodSucceeded, false),
	}, only("n"), epoch)
	expect(t, doomed)
	if !next.IsZero() {
		t.Errorf("another sweep at %v though nothing will change", next)
	}
}

func TestPodsDeletedBeforeTheyHadANode(t *testing.T) {
	doomed, _ := NewMissing(Config{}).Sweep([]*corev1.Pod{makePod("p", "", corev1.PodPending, true)}, only(), epoch)
	expect(t, doomed, "p: deleted before it got a node")
}

func TestPodsOfADeletedNodeGoAfterAShortQuarantine(t *testing.T) {
	m := NewMissing(Config{})
	pods := []*corev1.Pod{makePod("a", "gone", corev1.PodRunning, false), makePod("b", "gone", corev1.PodRunning, true)}
	m.NodeDeleted("gone", epoch)
	doomed, next := m.Sweep(pods, only(), epoch.Add(time.Second))
	expect(t, doomed)
	if next != epoch.Add(2*time.Second) {
		t.Errorf("next sweep %v after the deletion, want 2 s", next.Sub(epoch))
	}
	doomed, _ = m.Sweep(pods, only(), next)
	expect(t, doomed, "a: its node is gone", "b: its node is gone")
}

func TestPodsOfANodeThatCameBackStay(t *testing.T) {
	m := NewMissing(Config{})
	pods := []*corev1.Pod{makePod("a", "n", corev1.PodRunning, false)}
	m.NodeDeleted("n", epoch)
	m.Sweep(pods, only(), epoch)
	doomed, _ := m.Sweep(pods, only("n"), epoch.Add(time.Second))
	expect(t, doomed)
	// Its absence was forgotten: should it vanish unseen, the long quarantine starts again.
	doomed, next := m.Sweep(pods, only(), epoch.Add(100*time.Second))
	expect(t, doomed)
	if next != epoch.Add(140*time.Second) {
		t.Errorf("next sweep at %v, want 140 s", next.Sub(epoch))
	}
}

func TestPodsOfAnUnknownNodeWaitLonger(t *testing.T) {
	m := NewMissing(Config{})
	pods := []*corev1.Pod{makePod("a", "never", corev1.PodPending, false)}
	_, next := m.Sweep(pods, only(), epoch)
	if next != epoch.Add(40*time.Second) {
		t.Errorf("next sweep at %v, want 40 s", next.Sub(epoch))
	}
	doomed, _ := m.Sweep(pods, only(), epoch.Add(39*time.Second))
	expect(t, doomed)
	doomed, _ = m.Sweep(pods, only(), epoch.Add(40*time.Second))
	expect(t, doomed, "a: its node is gone")
}

func TestTerminatedPodsBeyondTheLimit(t *testing.T) {
	pods := []*corev1.Pod{
		makePod("young", "n", corev1.PodSucceeded, false),
		makePod("old", "n", corev1.PodFailed, false),
		makePod("evicted", "n", corev1.PodFailed, false),
		makePod("running", "n", corev1.PodRunning, false),
	}
	pods[0].CreationTimestamp = metav1.NewTime(epoch.Add(time.Hour))
	pods[2].CreationTimestamp = metav1.NewTime(epoch.Add(2 * time.Hour))
	pods[2].Status.Reason = "Evicted"
	for limit, want := range map[int][]string{
		-1: {},
		3:  {},
		2:  {"evicted: too many terminated pods"},
		1:  {"evicted: too many terminated pods", "old: too many terminated pods"},
	} {
		doomed, _ := NewMissing(Config{MaxTerminated: limit}).Sweep(pods, only("n"), epoch)
		expect(t, doomed, want...)
	}
}

// A sweep of the suspects finds what a sweep of all pods finds.
func TestSuspectsAreAllThatMatters(t *testing.T) {
	for _, node := range []string{"", "there", "gone", "gone too"} {
		for _, phase := range []corev1.PodPhase{"", corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed} {
			for _, deleting := range []bool{false, true} {
				all := []*corev1.Pod{makePod("other", "there", corev1.PodSucceeded, false), makePod("this", node, phase, deleting)}
				exists := only("there")
				suspects := slices.DeleteFunc(slices.Clone(all), func(p *corev1.Pod) bool { return !Suspect(p, exists) })
				a, b := NewMissing(Config{MaxTerminated: 1}), NewMissing(Config{MaxTerminated: 1})
				for _, m := range []*Missing{a, b} {
					m.NodeDeleted("gone", epoch)
				}
				for _, at := range []time.Duration{0, 3 * time.Second, time.Minute} {
					want, next := a.Sweep(all, exists, epoch.Add(at))
					got, also := b.Sweep(suspects, exists, epoch.Add(at))
					if !slices.Equal(describe(got), describe(want)) || !next.Equal(also) {
						t.Errorf("a pod on %q that is %q (deleting %v): the suspects give %q until %v, all give %q until %v", node, phase, deleting, describe(got), also, describe(want), next)
					}
				}
			}
		}
	}
}
