package illness

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func mustParse(t *testing.T, text string) *Plan {
	t.Helper()
	plan, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// patient is a node that was read at begin.
func patient(t *testing.T, plan *Plan, name string, labels map[string]string, annotation string) *Patient {
	t.Helper()
	p := NewPatient(plan, name)
	annotations := map[string]string{}
	if annotation != "" {
		annotations[Annotation] = annotation
	}
	if err := p.Read(labels, annotations, begin); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestNodeFaultsComeAndGo(t *testing.T) {
	for name, c := range map[string]struct {
		annotation string
		// at is what the node is like after so many seconds.
		at map[int]string
		// next is when it changes, seconds after begin; -1 for never.
		next int
	}{
		"well":                 {"", map[int]string{0: "well", 9999: "well"}, -1},
		"spared":               {"none", map[int]string{0: "well"}, -1},
		"not ready for ever":   {"notReady", map[int]string{0: "not ready", 99999: "not ready"}, -1},
		"not ready for a time": {"{notReady: {after: 10s, for: 20s}}", map[int]string{0: "well", 9: "well", 10: "not ready", 29: "not ready", 30: "well", 99999: "well"}, 10},
		"short of memory":      {"{pressure: {of: memory, for: 5s}}", map[int]string{0: "memory", 5: "well"}, 5},
		"short of disk":        {"{pressure: {of: disk}}", map[int]string{0: "disk"}, -1},
		"short of processes":   {"{pressure: {of: pid}}", map[int]string{0: "pid"}, -1},
		"without power":        {"powerLoss", map[int]string{0: "off", 99999: "off"}, -1},
		"without power later":  {"{powerLoss: {after: 1m, for: 1h}}", map[int]string{59: "well", 60: "off", 3659: "off", 3660: "well"}, 60},
		"without resizes":      {"noResize", map[int]string{0: "no resizes: In-place resize is not supported: a simulated fault"}, -1},
		"and in other words":   {"{noResize: {message: it is old}}", map[int]string{0: "no resizes: it is old"}, -1},
		"worked on":            {"maintenance", map[int]string{0: "MaintenanceInProgress: a simulated fault"}, -1},
		"drained for a time":   {"{maintenance: {condition: Drained, after: 5s, for: 5s, message: m}}", map[int]string{4: "well", 5: "Drained: m", 10: "well"}, 5},
		"small":                {"{room: {cpu: 100m}}", map[int]string{0: "room"}, -1},
	} {
		p := patient(t, nil, "n", nil, c.annotation)
		for seconds, want := range c.at {
			if got := describe(p.Look(begin.Add(time.Duration(seconds) * time.Second))); got != want {
				t.Errorf("%s: after %d s the node is %s, want %s", name, seconds, got, want)
			}
		}
		next := -1
		if at := p.Look(begin).Next; !at.IsZero() {
			next = int(at.Sub(begin) / time.Second)
		}
		if next != c.next {
			t.Errorf("%s: the node changes after %d s, want %d", name, next, c.next)
		}
	}
}

func describe(s State) string {
	switch {
	case s.Off:
		return "off"
	case s.Silent:
		return "silent"
	case s.NotReady != "":
		return "not ready"
	case s.Pressure.Memory:
		return "memory"
	case s.Pressure.Disk:
		return "disk"
	case s.Pressure.PID:
		return "pid"
	case s.Room != nil:
		return "room"
	case s.Maintenance != nil:
		return string(s.Maintenance.Condition) + ": " + s.Maintenance.Message
	case s.NoResize != "":
		return "no resizes: " + s.NoResize
	}
	return "well"
}

func TestFlappingNodesAreDownForTheirShareOfTime(t *testing.T) {
	plan := mustParse(t, "faults: [{name: f, flaps: {up: 20s, down: 10s}}]")
	together := 0
	a, b := patient(t, plan, "a", nil, ""), patient(t, plan, "b", nil, "")
	down := 0
	for s := range 300 {
		now := begin.Add(time.Duration(s) * time.Second)
		x, y := a.Look(now), b.Look(now)
		if x.Silent {
			down++
		}
		if x.Silent == y.Silent {
			together++
		}
		if !x.Next.After(now) || x.Next.Sub(now) > 20*time.Second || a.Look(x.Next).Silent == x.Silent {
			t.Fatalf("after %d s the node is %+v: want a next change within 20 s, and another state then", s, x)
		}
	}
	if down != 100 || together == 300 {
		t.Errorf("the node was down for %d of 300 s, want 100; and with the other one in %d of them, want not all", down, together)
	}
}

func TestSharesAndSelectors(t *testing.T) {
	plan := mustParse(t, `
seed: 1
faults:
- {name: some, share: 10%, nodes: {matchLabels: {zone: a}}, powerLoss: {}}`)
	count := func(plan *Plan, zone string) (n int, who string) {
		for i := range 2000 {
			name := fmt.Sprintf("sim-%04d", i+1)
			if patient(t, plan, name, map[string]string{"zone": zone}, "").Look(begin).Silent {
				n, who = n+1, who+name
			}
		}
		return n, who
	}
	n, who := count(plan, "a")
	if n < 150 || n > 250 {
		t.Errorf("a share of 10%% of 2000 nodes took %d", n)
	}
	if again, same := count(plan, "a"); again != n || same != who {
		t.Error("the same seed took other nodes")
	}
	plan.Seed = 2
	if _, other := count(plan, "a"); other == who {
		t.Error("another seed took the same nodes")
	}
	if n, _ := count(plan, "b"); n != 0 {
		t.Errorf("%d nodes of another zone were taken", n)
	}
}

func TestFaultHoldsSinceItWasFirstSeen(t *testing.T) {
	plan := mustParse(t, "faults: [{nodes: {matchLabels: {sick: 'yes'}}, notReady: {for: 10s}}]")
	p := patient(t, plan, "n", nil, "")
	later := begin.Add(time.Hour)
	if p.Look(later).NotReady != "" {
		t.Error("a node without the label is ill")
	}
	sick := map[string]string{"sick": "yes"}
	for i := range 3 { // reading it again must not begin it again
		if err := p.Read(sick, nil, later.Add(time.Duration(i)*5*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	if p.Look(later.Add(9*time.Second)).NotReady == "" || p.Look(later.Add(10*time.Second)).NotReady != "" {
		t.Error("the fault does not last 10 s from when the label was seen")
	}
	_ = p.Read(map[string]string{}, nil, later)
	if p.Look(later).NotReady != "" {
		t.Error("the node is ill without its label")
	}
}

func newPod(edit func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "p", Labels: map[string]string{"app": "agent"}, Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "prepare", Image: "example.com/agent:1.5"}},
			Containers:     []corev1.Container{{Name: "main", Image: "example.com/agent:1.5", Env: []corev1.EnvVar{{Name: "MODE", Value: "bad"}}}},
		},
	}
	if edit != nil {
		edit(p)
	}
	return p
}

func TestPodsAreChosen(t *testing.T) {
	for text, want := range map[string]bool{
		"":                                                true,
		"image: example.com/agent:1.5":                    true,
		"image: example.com/agent:1.4":                    false,
		"image: 'example.com/agent:*'":                    true,
		"image: 'example.com/other:*'":                    false,
		"env: {MODE: bad}":                                true,
		"env: {MODE: good}":                               false,
		"namespace: kube-system":                          true,
		"namespace: default":                              false,
		"labels: {app: agent}":                            true,
		"labels: {app: other}":                            false,
		"annotations: {revision: bad}":                    false,
		"container: main":                                 true,
		"container: prepare":                              false,
		"image: example.com/agent:1.5, env: {MODE: good}": false,
	} {
		plan := mustParse(t, "faults: [{crash: {exitCode: 3, message: gone}, pods: {"+text+"}}]")
		p, pod := patient(t, plan, "n", nil, ""), newPod(nil)
		ward, err := p.Ward(pod)
		if err != nil {
			t.Fatal(err)
		}
		got := ward.Container(pod, &pod.Spec.Containers[0])
		if got.Ends != want || want && (got.ExitCode != 3 || got.Message != "gone" || got.After != time.Second || got.Reason != "Error") {
			t.Errorf("pods {%s}: the container has %+v, want it concerned: %v", text, got, want)
		}
		if init := ward.Container(pod, &pod.Spec.InitContainers[0]); init.Ends != (text == "container: prepare") {
			t.Errorf("pods {%s}: the init container has %+v, want it concerned only if it is named", text, init)
		}
	}
}

func TestFaultsOfOneContainer(t *testing.T) {
	for value, want := range map[string]Container{
		"crash":                                        {Ends: true, After: time.Second, ExitCode: 1, Reason: "Error"},
		"{outOfMemory: {after: 7s}}":                   {Ends: true, After: 7 * time.Second, ExitCode: 137, Reason: "OOMKilled"},
		"neverReady":                                   {Unready: "HTTP probe failed with statuscode: 503"},
		"{slowPull: {takes: 30s}}":                     {PullTakes: 30 * time.Second},
		"{slowTask: {takes: 30s}}":                     {TaskTakes: 30 * time.Second},
		"slowTask":                                     {TaskTakes: time.Minute},
		"{pullError: {message: m}}":                    {PullError: "m"},
		"slowStart":                                    {ReadyAfter: time.Minute},
		"{slowStart: {takes: 10s}}":                    {ReadyAfter: 10 * time.Second},
		"{slowStart: {takes: 10s, upTo: 10s}}":         {ReadyAfter: 10 * time.Second},
		"{crash: {times: 2}}":                          {Ends: true, After: time.Second, ExitCode: 1, Reason: "Error", times: 2},
		"{startError: {message: m}}":                   {StartError: "m"},
		"{crash: {}, share: 0%}":                       {},
		"{crash: {}, nodes: {matchLabels: {zone: b}}}": {},
	} {
		pod := newPod(func(p *corev1.Pod) { p.Annotations[Annotation] = value })
		ward, err := patient(t, nil, "n", map[string]string{"zone": "a"}, "").Ward(pod)
		if err != nil {
			t.Errorf("%s: %v", value, err)
		}
		if got := ward.Container(pod, &pod.Spec.Containers[0]); got != want {
			t.Errorf("%s: the container has\n%+v\nwant\n%+v", value, got, want)
		}
		if ward, _ := patient(t, nil, "n", nil, "none").Ward(pod); ward != nil {
			t.Errorf("%s: a spared node has an ill pod", value)
		}
	}
	if ward, err := patient(t, nil, "n", nil, "").Ward(newPod(nil)); ward != nil || err != nil {
		t.Errorf("where nobody is ill a pod has the ward %v, %v", ward, err)
	}
}

// Each node has a time of its own for a slow start, the same each time; a crash that is counted comes in the first
// starts only.
func TestStartsOfEachNode(t *testing.T) {
	plan := mustParse(t, "{seed: 3, faults: [{slowStart: {takes: 10s, upTo: 70s}}]}")
	pod, seen := newPod(nil), map[time.Duration]bool{}
	var first, last time.Duration = time.Hour, 0
	for i := range 200 {
		takes := func() time.Duration {
			ward, err := patient(t, plan, fmt.Sprint("n", i), nil, "").Ward(pod)
			if err != nil {
				t.Fatal(err)
			}
			c := ward.Container(pod, &pod.Spec.Containers[0])
			return c.ReadyAfter
		}
		d := takes()
		if d != takes() || d < 10*time.Second || d > 70*time.Second {
			t.Fatalf("node %d takes %v, then %v; want from 10 s to 70 s", i, d, takes())
		}
		seen[d], first, last = true, min(first, d), max(last, d)
	}
	if len(seen) < 190 || first > 15*time.Second || last < 65*time.Second {
		t.Errorf("200 nodes take %d times from %v to %v", len(seen), first, last)
	}
	ends := Container{Ends: true, times: 2}
	if !ends.EndsAt(0) || !ends.EndsAt(1) || ends.EndsAt(2) || (&Container{}).EndsAt(0) {
		t.Error("a container that crashes twice does not end after its first two starts alone")
	}
	always := Container{Ends: true}
	if !always.EndsAt(1000) {
		t.Error("a container that always crashes stops doing so")
	}
}

func TestNodeDiesOfAContainer(t *testing.T) {
	for value, at := range map[string]map[int]string{
		"killsNode":                          {119: "well", 120: "off", 99999: "off"},
		"{killsNode: {after: 10s, for: 5s}}": {9: "well", 10: "off", 14: "off", 15: "well", 25: "off", 30: "well"},
	} {
		p := patient(t, nil, "n", nil, "")
		pod := newPod(func(p *corev1.Pod) { p.Annotations[Annotation] = value })
		ward, err := p.Ward(pod)
		if err != nil {
			t.Fatal(err)
		}
		c := ward.Container(pod, &pod.Spec.Containers[0])
		c.Started = begin
		if !c.Kills() || !p.Dies("uid", c) || p.Dies("uid", c) {
			t.Errorf("%s: the container does not kill, or kills again each time", value)
		}
		for seconds, want := range at {
			if got := describe(p.Look(begin.Add(time.Duration(seconds) * time.Second))); got != want {
				t.Errorf("%s: after %d s the node is %s, want %s", value, seconds, got, want)
			}
		}
		p.Survives("uid", begin.Add(5*time.Second))
		if got := describe(p.Look(begin.Add(time.Hour))); got != "well" {
			t.Errorf("%s: the node is %s though the pod went before it could kill", value, got)
		}
	}
	p := patient(t, nil, "n", nil, "")
	p.Dies("uid", Container{Started: begin, kills: &KillsNode{}})
	p.Survives("uid", begin.Add(time.Hour))
	if got := describe(p.Look(begin.Add(2 * time.Hour))); got != "off" {
		t.Errorf("a node that died for ever is %s when the dead pod's object is deleted, want off", got)
	}
}

func TestBadInputIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"fault: []":                                                                    `unknown field "fault"`,
		"faults: [{}]":                                                                 `fault "fault 1": it names 0 kinds of fault [], and must name one of notReady, pressure`,
		"faults: [{crash: {}, powerLoss: {}}]":                                         `it names 2 kinds of fault [powerLoss crash]`,
		"faults: [{crash: {often: yes}}]":                                              `unknown field "often"`,
		"faults: [{crash: {after: soon}}]":                                             `invalid duration "soon"`,
		"faults: [{crash: {after: -5s}}]":                                              "-5s is less than no time",
		"faults: [{crash: {exitCode: 256}}]":                                           "exitCode 256 is not from 1 to 255",
		"faults: [{crash: {times: -1}}]":                                               "times -1 is less than never",
		"faults: [{slowStart: {takes: -1s}}]":                                          "-1s is less than no time",
		"faults: [{slowStart: {takes: 2m, upTo: 1m}}]":                                 "upTo 1m0s is less than takes 2m0s",
		"sizes: [{cpu: 1}, {memory: 0}]":                                               "size 2: memory of 0 is not more than nothing",
		"sizes: [{name: 'a b'}]":                                                       `size 1: name "a b": `,
		"sizes: [{disk: 1}]":                                                           `unknown field "disk"`,
		"faults: [{share: 5, crash: {}}]":                                              `share "5" is not a percentage`,
		"faults: [{share: '5', crash: {}}]":                                            `share "5" is not a percentage from 0% to 100%`,
		"faults: [{share: 101%, crash: {}}]":                                           `share "101%" is not a percentage`,
		"faults: [{share: NaN%, crash: {}}]":                                           `share "NaN%" is not a percentage`,
		"faults: [{pods: {}, powerLoss: {}}]":                                          "powerLoss is a fault of nodes; pods say nothing about it",
		"faults: [{pods: {}, noResize: {}}]":                                           "noResize is a fault of nodes; pods say nothing about it",
		"faults: [{pods: {image: '*x'}, crash: {}}]":                                   "a * may stand at its end only",
		"faults: [{maintenance: {condition: Ready}}]":                                  `maintenance has the condition MaintenanceInProgress, DrainInProgress, Drained, GracefulNodeShutdownInProgress or MaintenancePlanned, not "Ready"`,
		"faults: [{pressure: {of: heat}}]":                                             `pressure is of memory, disk or pid, not of "heat"`,
		"faults: [{flaps: {up: 1s}}]":                                                  "flaps needs both times",
		"faults: [{room: {}}]":                                                         "names none",
		"faults: [{room: {cpu: -1}}]":                                                  "less than nothing",
		"faults: [{name: a, crash: {}}, {name: a, crash: {}}]":                         `two faults are called "a"`,
		"faults: [{nodes: {matchExpressions: [{key: a, operator: Like}]}, crash: {}}]": `"Like" is not a valid label selector operator`,
		"labels: [{key: zone}]":                                                        `label "zone": it has no values`,
		"labels: [{key: 'a b', values: [x]}]":                                          `label "a b": `,
		"labels: [{key: zone, values: ['a b']}]":                                       `label "zone": value "a b": `,
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: the error is %v, want one line with %q", text, err, want)
		}
	}
	p := NewPatient(nil, "n")
	if err := p.Read(nil, map[string]string{Annotation: "plague"}, begin); err == nil || !strings.Contains(err.Error(), `unknown field "plague"`) {
		t.Errorf("an unknown fault in an annotation: the error is %v", err)
	}
	if err := p.Read(nil, map[string]string{Annotation: "plague"}, begin); err != nil {
		t.Errorf("the same annotation is an error again: %v", err)
	}
	pod := newPod(func(p *corev1.Pod) { p.Annotations[Annotation] = "powerLoss" })
	if _, err := p.Ward(pod); err == nil || !strings.Contains(err.Error(), "powerLoss is a fault of nodes, and stands on a pod") {
		t.Errorf("a fault of nodes on a pod: the error is %v", err)
	}
}

// A container that uses so much memory is killed where its limit is lower, and where it has none it is not.
func TestMemoryThatAContainerUses(t *testing.T) {
	for limit, ends := range map[string]bool{"256Mi": true, "512Mi": false, "1Gi": false, "": false} {
		pod := newPod(func(p *corev1.Pod) {
			p.Annotations[Annotation] = "{outOfMemory: {uses: 512Mi}}"
			if limit != "" {
				p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(limit)}
			}
		})
		ward, err := patient(t, nil, "n", nil, "").Ward(pod)
		if err != nil {
			t.Fatal(err)
		}
		if got := ward.Container(pod, &pod.Spec.Containers[0]); got.Ends != ends || ends && got.Reason != "OOMKilled" {
			t.Errorf("with the limit %q it is %+v, want it killed: %v", limit, got, ends)
		}
	}
	_, err := Parse([]byte("faults: [{outOfMemory: {uses: 0}}]"))
	if err == nil || !strings.Contains(err.Error(), "uses must be more than 0") {
		t.Errorf("what uses nothing is taken: %v", err)
	}
}
