package scheduler

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"
)

// Many pods that wait are not written at each node that joins, as the number of nodes is in what they are told. They are
// told the last words once their turn has come; one that has got a node meanwhile is not.
func TestNodesThatJoinAreNotWrittenIntoEachPodThatWaits(t *testing.T) {
	client, now := fake.NewClientset(), clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	writer := &statusWriter{}
	s, err := New(Config{Informers: sharedInformers{informers.NewSharedInformerFactory(client, 0)}, Writer: writer, Events: NewEventSink(client), Clock: now})
	if err != nil {
		t.Fatal(err)
	}
	l := s.loop
	const many = 300
	pods := map[string]*corev1.Pod{}
	for i := range many {
		p := pod(fmt.Sprintf("p%03d", i), requests("100", "1Gi"))
		pods[p.Name] = p
		l.onPod(p, false)
	}
	round := func() (told []string) {
		l.sayAgain()
		for p := l.queue.Pop(now.Now()); p != nil; p = l.queue.Pop(now.Now()) {
			l.schedule(t.Context(), p)
		}
		writer.said = nil
		for _, write := range l.binder.others {
			write(t.Context())
		}
		l.binder.others = nil
		for _, text := range writer.said {
			name, message, _ := strings.Cut(text, ": ")
			p := pods[name].DeepCopy()
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
				Reason: corev1.PodReasonUnschedulable, Message: message}}
			pods[name] = p
			l.onPod(p, false)
		}
		return writer.said
	}
	l.onNode(node("a", "8", "4Gi"), false)
	if told := round(); len(told) != many || !strings.Contains(told[0], "0/1 nodes") {
		t.Fatalf("%d pods are told first, such as %s", len(told), told[0])
	}
	for i, name := range []string{"b", "c"} {
		now.Step(1100 * time.Millisecond)
		l.onNode(node(name, "8", "4Gi"), false)
		if told := round(); len(told) > 0 {
			t.Errorf("at node %d, %d pods are told, such as %s", i+2, len(told), told[0])
		}
	}
	next, is := l.due()
	if !is || next.Sub(now.Now()) > time.Second {
		t.Errorf("it is looked again at %v, %v", next, is)
	}
	bound := pods["p000"].DeepCopy()
	bound.Spec.NodeName = "a"
	l.onPod(bound, false)
	var told []string
	for range 2 { // the last words are those of an attempt between the two
		now.Step(4 * time.Second)
		told = round()
		if len(told) != many-1 {
			t.Errorf("in the end %d pods are told", len(told))
		}
	}
	if !strings.Contains(fmt.Sprint(told), "0/3 nodes") || strings.Contains(fmt.Sprint(told), "0/2 nodes") {
		t.Errorf("in the end pods are told such as %s", told[0])
	}
	for _, text := range told {
		if strings.HasPrefix(text, "p000") {
			t.Error("a pod that has a node is told that there is none")
		}
	}
}
