package queue

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/fit"
)

// changes are the names of the changes in the scripts.
var changes = map[string]fit.Change{
	"added": fit.NodeAdded, "allocatable": fit.AllocatableChanged, "labels": fit.LabelsChanged,
	"taints": fit.TaintsChanged, "pod-removed": fit.PodRemoved,
}

// script is a queue with a clock that only the script moves.
type script struct {
	queue *Queue
	start time.Time
	now   time.Time
}

func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		s := &script{queue: New(Config{}), start: start, now: start}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			s.run(t, d, &out)
			return out.String()
		})
	})
}

// run executes one command of a script:
//
//	add NAME [priority=N] [changed]    a pod comes in, or its object changes
//	pop                                take the next pod
//	retry NAME | park NAME for=CHANGE,... [nodes=NAME,...] | postpone NAME DURATION
//	change NODE CHANGE                 a node changed
//	delete NAME
//	wait DURATION                      time passes
//	next                               when the queue wants to be asked again
//	dump
func (s *script) run(t *testing.T, d *datadriven.TestData, out *strings.Builder) {
	t.Helper()
	switch d.Cmd {
	case "add":
		s.queue.Add(makePod(t, d), d.HasArg("changed"), s.now)
	case "pop":
		if pod := s.queue.Pop(s.now); pod != nil {
			fmt.Fprintln(out, pod.Object.Name)
			return
		}
		fmt.Fprintln(out, "none")
	case "retry":
		s.queue.Retry(types.UID(d.CmdArgs[0].Key), s.now)
	case "park":
		s.queue.Park(types.UID(d.CmdArgs[0].Key), parseWait(t, d), s.now)
	case "postpone":
		s.queue.Postpone(types.UID(d.CmdArgs[0].Key), s.now.Add(duration(t, d.CmdArgs[1].Key)))
	case "change":
		s.queue.Changed(d.CmdArgs[0].Key, changes[d.CmdArgs[1].Key], s.now)
	case "delete":
		s.queue.Delete(types.UID(d.CmdArgs[0].Key))
	case "wait":
		s.now = s.now.Add(duration(t, d.CmdArgs[0].Key))
		fmt.Fprintf(out, "at %s\n", s.now.Sub(s.start))
	case "next":
		if next, ok := s.queue.Next(); ok {
			fmt.Fprintf(out, "at %s\n", next.Sub(s.start))
			return
		}
		fmt.Fprintln(out, "never")
	case "dump":
		out.WriteString(s.queue.Dump())
	default:
		t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	}
}

func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func makePod(t *testing.T, d *datadriven.TestData) *fit.Pod {
	t.Helper()
	name := d.CmdArgs[0].Key
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
	if d.HasArg("priority") {
		var text string
		d.ScanArgs(t, "priority", &text)
		value, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		priority := int32(value)
		pod.Spec.Priority = &priority
	}
	return fit.NewPod(pod)
}

func parseWait(t *testing.T, d *datadriven.TestData) Wait {
	t.Helper()
	var wait Wait
	for _, arg := range d.CmdArgs[1:] {
		switch arg.Key {
		case "for":
			for _, name := range arg.Vals {
				wait.For |= changes[name]
			}
		case "nodes":
			wait.Nodes = append([]string{}, arg.Vals...)
		}
	}
	return wait
}

// A pod that one of its claims has woken is not woken once more while it is being placed.
func TestAClaimWakesAPodOnce(t *testing.T) {
	now := time.Unix(0, 0)
	q := New(Config{})
	q.Add(fit.NewPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}}), false, now)
	q.Await(q.Pop(now).UID, Wait{Claims: []string{"ns/claim"}}, now)
	for _, woken := range []bool{true, false} {
		q.ClaimChanged("ns/claim", now)
		if got := q.Pop(now); (got != nil) != woken {
			t.Errorf("the queue gives %v, want a pod: %v", got, woken)
		}
	}
}

func TestParkedPodsPinnedElsewhereAreNotTouched(t *testing.T) {
	now := time.Unix(0, 0)
	q := New(Config{})
	const pods = 1000
	for i := range pods {
		name := strconv.Itoa(i)
		q.Add(fit.NewPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}), false, now)
		q.Park(q.Pop(now).UID, Wait{For: fit.PodRemoved, Nodes: []string{"node-" + name}}, now)
	}
	later := now.Add(time.Minute)
	q.Changed("node-7", fit.PodRemoved, later)
	if active, _, parked := q.Lengths(); active != 1 || parked != pods-1 {
		t.Errorf("%d pods are active and %d parked after a change of one node, want 1 and %d", active, parked, pods-1)
	}
	if pod := q.Pop(later); pod == nil || pod.UID != "7" {
		t.Errorf("popped %v, want pod 7", pod)
	}
}

// A volume comes while many pods wait for something else.
func TestAChangeEverywhereThatHelpsNobodyCostsNothing(t *testing.T) {
	q, now := New(Config{}), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 100 {
		uid := types.UID(strconv.Itoa(i))
		q.Add(fit.NewPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: string(uid), UID: uid}}), false, now)
		q.Pop(now)
		q.Park(uid, Wait{For: fit.NodeAdded}, now)
	}
	if n := testing.AllocsPerRun(10, func() { q.ChangedEverywhere(fit.VolumesChanged, now) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	q.ChangedEverywhere(fit.NodeAdded, now.Add(time.Hour))
	if active, _, _ := q.Lengths(); active != 100 {
		t.Errorf("%d pods are tried again, want 100", active)
	}
}
