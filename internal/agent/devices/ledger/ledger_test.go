package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

const widget = "example.com/widget"

var epoch = time.Unix(1_700_000_000, 0)

func listed(healthy int, sick ...string) *Ledger {
	l := New()
	var all []Device
	for i := range healthy {
		all = append(all, Device{ID: fmt.Sprintf("w%d", i), Healthy: true})
	}
	for _, id := range sick {
		all = append(all, Device{ID: id})
	}
	l.List(widget, all)
	return l
}

func has(pod, container string, ids ...string) Grant {
	return Grant{Pod: types.UID(pod), Container: container, Resource: widget, Devices: ids, Answer: []byte{}}
}

// promised is a grant that the plugin did not confirm.
func promised(pod, container string, ids ...string) Grant {
	g := has(pod, container, ids...)
	g.Answer = nil
	return g
}

func TestChoose(t *testing.T) {
	need := func(amount int, reusable ...string) Need {
		return Need{Container: "c", Resource: widget, Amount: amount, Reusable: reusable}
	}
	for _, tc := range []struct {
		name    string
		ledger  func() *Ledger
		grants  []Grant
		need    Need
		picked  string // what the container gets if its plugin prefers w2
		problem string
	}{
		{"what is preferred goes first", func() *Ledger { return listed(3) }, nil, need(2), "w2 w0", ""},
		{"what others have is not free", func() *Ledger { return listed(3) }, []Grant{has("other", "c", "w2", "w0")}, need(1), "w1", ""},
		{"too few", func() *Ledger { return listed(2) }, []Grant{has("other", "c", "w0")}, need(2), "",
			"requested number of devices unavailable for example.com/widget. Requested: 2, Available: 1"},
		{"sick devices are not given", func() *Ledger { return listed(1, "w2") }, nil, need(1), "w0", ""},
		{"all sick", func() *Ledger { return listed(0, "w0") }, nil, need(1), "",
			"no healthy devices present; cannot allocate unhealthy devices example.com/widget"},
		{"nobody offers it", New, nil, need(1), "", "cannot allocate unregistered device example.com/widget"},
		{"the plugin is still to come", func() *Ledger { l := New(); l.Expect(widget, epoch); return l }, nil, need(1), "",
			"cannot allocate unregistered device example.com/widget"},
		{"the plugin went away", func() *Ledger { l := listed(3); l.Lose(widget, epoch); return l }, nil, need(1), "",
			"cannot allocate unregistered device example.com/widget"},
		{"what an init container had is had again", func() *Ledger { return listed(3) }, []Grant{has("pod", "init", "w1")}, need(2, "init"), "w1 w2", ""},
		{"what a sidecar has is its own", func() *Ledger { return listed(3) }, []Grant{has("pod", "init", "w1"), has("pod", "side", "w1")},
			need(1, "init"), "w2", ""},
		{"no more than is needed is had again", func() *Ledger { return listed(3) }, []Grant{has("pod", "init", "w0", "w1")}, need(1, "init"), "w0", ""},
		{"given before", func() *Ledger { return listed(3) }, []Grant{has("pod", "c", "w1")}, need(1), "", ""},
		{"promised before, and never confirmed", func() *Ledger { return listed(1) }, []Grant{promised("pod", "c", "w0")}, need(1), "w0", ""},
		{"given before, and the plugin is still to come", New, []Grant{has("pod", "c", "w1")}, need(1), "", ""},
		{"given before, and now sick", func() *Ledger { return listed(1, "w1") }, []Grant{has("pod", "c", "w1")}, need(1), "",
			"previously allocated devices are no longer healthy; cannot allocate unhealthy devices example.com/widget"},
		{"given before, and now it wants more", func() *Ledger { return listed(3) }, []Grant{has("pod", "c", "w1")}, need(2), "",
			`pod "pod" container "c" changed request for resource "example.com/widget" from 1 to 2`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := tc.ledger()
			for _, g := range tc.grants {
				l.Put(g)
			}
			c, err := l.Choose("pod", tc.need)
			if text := fmt.Sprint(err); (err != nil || tc.problem != "") && text != tc.problem {
				t.Fatalf("error %q, want %q", text, tc.problem)
			}
			if got := strings.Join(c.Pick([]string{"w2", "foreign"}), " "); got != tc.picked || c.Has != (tc.picked == "" && tc.problem == "") {
				t.Errorf("gets %q (given before: %v), want %q", got, c.Has, tc.picked)
			}
		})
	}
}

func TestNeedsFollowTheOrderOfContainers(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	wants := func(name string, policy *corev1.ContainerRestartPolicy, resources ...string) corev1.Container {
		limits := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
		for _, r := range resources {
			limits[corev1.ResourceName(r)] = resource.MustParse("2")
		}
		return corev1.Container{Name: name, RestartPolicy: policy, Resources: corev1.ResourceRequirements{Limits: limits}}
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{wants("init", nil, widget), wants("side", &always, widget)},
		Containers:     []corev1.Container{wants("main", nil, widget, "example.com/gadget", "other.org/x"), wants("plain", nil)},
	}}
	var got []string
	for _, n := range Needs(pod, func(r string) bool { return strings.HasPrefix(r, "example.com/") }) {
		got = append(got, fmt.Sprintf("%s %s %d %v", n.Container, n.Resource, n.Amount, n.Reusable))
	}
	want := []string{"init example.com/widget 2 []", "side example.com/widget 2 [init]", "main example.com/gadget 2 [init]", "main example.com/widget 2 [init]"}
	if !slices.Equal(got, want) {
		t.Errorf("needs\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestTotalsOfAPluginThatGoesAway(t *testing.T) {
	l := listed(2, "w9")
	check := func(when string, capacity, allocatable int64) {
		t.Helper()
		if got := l.Totals()[widget]; got != (Total{capacity, allocatable}) {
			t.Errorf("%s: %+v, want %d and %d", when, got, capacity, allocatable)
		}
	}
	check("listed", 3, 2)
	l.Lose(widget, epoch)
	l.Lose(widget, epoch.Add(time.Hour)) // it is gone already
	check("gone", 3, 0)
	if l.Expire(epoch.Add(Grace - 1)) {
		t.Error("the grace period ends too early")
	}
	check("gone, within the grace period", 3, 0)
	if !l.Expire(epoch.Add(Grace)) || l.Expire(epoch.Add(Grace)) {
		t.Error("the end of the grace period is noticed once, when it is there")
	}
	check("gone for good", 0, 0)
	if len(l.Resources()) != 0 || !l.Knows(widget) {
		t.Errorf("counted are %v, known is %v; want nothing to be counted, and the name to be known", l.Resources(), l.Knows(widget))
	}
	l.List(widget, []Device{{ID: "w0", Healthy: true}})
	check("back", 1, 1)
}

func TestIsExtended(t *testing.T) {
	for name, want := range map[string]bool{
		"example.com/widget": true, "memory": false, "kubernetes.io/x": false, "a.kubernetes.io/x": false, "requests.example.com/x": false, "mykubernetes.io/x": true,
	} {
		if IsExtended(name) != want {
			t.Errorf("IsExtended(%q) is %v", name, !want)
		}
	}
}

// TestNoDeviceIsGivenTwice lets pods come and go, and devices fall ill, vanish and come back, in any order.
func TestNoDeviceIsGivenTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := New()
		all := []string{"a", "b", "c", "d"}
		list := func() {
			var devices []Device
			for _, id := range all {
				if rapid.Bool().Draw(t, "there") {
					devices = append(devices, Device{ID: id, Healthy: rapid.Bool().Draw(t, "healthy")})
				}
			}
			l.List(widget, devices)
		}
		pods := map[types.UID]bool{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			pod := types.UID(rapid.SampledFrom([]string{"p", "q", "r"}).Draw(t, "pod"))
			switch rapid.SampledFrom([]string{"admit", "admit", "free", "list", "lose"}).Draw(t, "event") {
			case "admit":
				if !pods[pod] && admit(t, l, pod) {
					pods[pod] = true
				}
			case "free":
				l.Free(pod)
				delete(pods, pod)
			case "list":
				list()
			case "lose":
				l.Lose(widget, epoch)
			}
			checkBooks(t, l, pods)
		}
		for pod := range pods {
			l.Free(pod)
		}
		if len(l.owners) != 0 || len(l.grants) != 0 {
			t.Fatalf("all pods left, and still in the books are %v, %v", l.owners, l.grants)
		}
	})
}

// admit gives a pod with an init container and a main one what they need, all or nothing.
func admit(t *rapid.T, l *Ledger, pod types.UID) bool {
	healthy := map[string]bool{}
	for _, d := range l.Devices(widget) {
		healthy[d.ID] = d.Healthy
	}
	for i, n := range []Need{{"init", widget, rapid.IntRange(1, 3).Draw(t, "init"), nil}, {"main", widget, rapid.IntRange(1, 3).Draw(t, "main"), []string{"init"}}} {
		c, err := l.Choose(pod, n)
		if err != nil {
			l.Free(pod)
			return false
		}
		ids := c.Pick(rapid.SliceOf(rapid.SampledFrom([]string{"a", "b", "c", "d", "x"})).Draw(t, "preferred"))
		if len(ids) != n.Amount {
			t.Fatalf("container %d needs %d and gets %v", i, n.Amount, ids)
		}
		for _, id := range ids {
			if !healthy[id] {
				t.Fatalf("device %s is given and not healthy", id)
			}
		}
		l.Put(Grant{Pod: pod, Container: n.Container, Resource: widget, Devices: ids, Answer: []byte{}})
	}
	return true
}

func checkBooks(t *rapid.T, l *Ledger, pods map[types.UID]bool) {
	owners := map[string]types.UID{}
	for _, g := range l.Grants() {
		if !pods[g.Pod] {
			t.Fatalf("pod %s is not there and has %v", g.Pod, g.Devices)
		}
		for i, id := range g.Devices {
			if slices.Contains(g.Devices[:i], id) {
				t.Fatalf("a container has %s twice: %v", id, g.Devices)
			}
			if owner, ok := owners[id]; ok && owner != g.Pod {
				t.Fatalf("pods %s and %s both have %s", owner, g.Pod, id)
			}
			owners[id] = g.Pod
		}
	}
	if !maps.Equal(owners, l.owners[widget]) {
		t.Fatalf("the owners are kept as %v, and are %v", l.owners[widget], owners)
	}
}

func TestADeviceOfTwoContainersStaysWithThePod(t *testing.T) {
	l := listed(3)
	l.Put(has("pod", "init", "w0"))
	l.Put(has("pod", "main", "w0"))
	l.Put(has("pod", "main", "w1"))
	c, err := l.Choose("other", Need{Container: "c", Resource: widget, Amount: 1})
	if err != nil || !slices.Equal(c.Free, []string{"w2"}) {
		t.Errorf("free are %v, %v; want w2 alone", c.Free, err)
	}
}
