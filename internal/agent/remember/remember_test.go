package remember

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	testclock "k8s.io/utils/clock/testing"
)

const patience = 2 * time.Minute

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func some() *Known {
	return &Known{
		Node:           &corev1.Node{ObjectMeta: named("", "n"), Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.0.0/24"}}},
		Services:       []*corev1.Service{{ObjectMeta: named("default", "web"), Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.7"}}},
		EndpointSlices: []*discoveryv1.EndpointSlice{{ObjectMeta: named("default", "web-1"), AddressType: discoveryv1.AddressTypeIPv4}},
		Namespaces:     []*corev1.Namespace{{ObjectMeta: named("", "default")}},
	}
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if known, err := Read(path); known != nil || err != nil {
		t.Fatalf("without a file there is %+v, %v, want nothing", known, err)
	}
	want := some()
	if err := replace(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("read %+v, %v, want what was written", got, err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(whole), "\n")
	for what, content := range map[string]string{
		"nothing": "", "half of it": string(whole[:len(whole)/2]), "no end": strings.Join(lines[:4], ""),
		"a line less": strings.Join(append(lines[:1:1], lines[2:]...), ""), "something else": "hello", "an unknown kind": `{"pod":{}}`,
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if known, err := Read(path); known != nil || err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("with %s it reads %+v, %v, want an error that names the file", what, known, err)
		}
	}
}

// TestUnfinished: what a process left that was killed while it wrote is removed.
func TestUnfinished(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, name := range []string{".file-123", ".file-456", ".other-1", "file"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(`{"objects":0}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, known, err := NewKeeper(path, "n", Sources{}, testclock.NewFakeClock(time.Now())); known == nil || err != nil {
		t.Fatalf("it knows %v, %v, want what is in the file", known, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{".other-1", "file"}; !reflect.DeepEqual(left, want) {
		t.Errorf("there are %v, want %v", left, want)
	}
	if _, _, err := NewKeeper(filepath.Join(dir, "missing", "file"), "n", Sources{}, testclock.NewFakeClock(time.Now())); err != nil {
		t.Errorf("without the directory: %v", err)
	}
}

// TestNewsOfTheNode: only what is remembered of the own node is a reason to write.
func TestNewsOfTheNode(t *testing.T) {
	node := func(change func(*corev1.Node)) *corev1.Node {
		n := some().Node.DeepCopy()
		change(n)
		return n
	}
	same := func(*corev1.Node) {}
	foreign := func(n *corev1.Node) { n.Name = "other" }
	for what, c := range map[string]struct {
		old, now *corev1.Node
		want     bool
	}{
		"it appears":         {nil, node(same), true},
		"another appears":    {nil, node(foreign), false},
		"its heartbeat":      {node(same), node(func(n *corev1.Node) { n.ResourceVersion, n.Annotations = "7", map[string]string{"a": "b"} }), false},
		"it got a network":   {node(func(n *corev1.Node) { n.Spec.PodCIDRs = nil }), node(same), true},
		"it got a zone":      {node(same), node(func(n *corev1.Node) { n.Labels = map[string]string{corev1.LabelTopologyZone: "z"} }), true},
		"another's networks": {node(foreign), node(func(n *corev1.Node) { n.Name, n.Spec.PodCIDRs = "other", nil }), false},
	} {
		k, _, err := NewKeeper(filepath.Join(t.TempDir(), "file"), "n", Sources{}, testclock.NewFakeClock(time.Now()))
		if err != nil {
			t.Fatal(err)
		}
		if c.old == nil {
			k.nodeHandler().OnAdd(c.now, false)
		} else {
			k.nodeHandler().OnUpdate(c.old, c.now)
		}
		if got := len(k.news) > 0; got != c.want {
			t.Errorf("%s: it is noted: %v, want %v", what, got, c.want)
		}
	}
}

// TestKeeper follows the API, not too often, and puts a broken file aside.
func TestKeeper(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	all := some()
	client := fake.NewClientset(all.Node, &corev1.Node{ObjectMeta: named("", "other")}, all.Services[0], all.EndpointSlices[0], all.Namespaces[0])
	factory := informers.NewSharedInformerFactory(client, 0)
	clock := testclock.NewFakeClock(time.Now())
	sources := Sources{Nodes: factory.Core().V1().Nodes().Informer(), Services: factory.Core().V1().Services().Informer(),
		EndpointSlices: factory.Discovery().V1().EndpointSlices().Informer(), Namespaces: factory.Core().V1().Namespaces().Informer()}
	keeper, known, err := NewKeeper(path, "n", sources, clock)
	if known != nil || err == nil {
		t.Fatalf("of a broken file it knows %+v, %v", known, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- keeper.Run(ctx) }()
	factory.Start(ctx.Done())

	waiting(t, clock)
	if content, err := os.ReadFile(path); err != nil || string(content) != "broken" {
		t.Errorf("before it has something better the file is %q, %v", content, err)
	}
	services(t, path, clock, "web")
	if content, err := os.ReadFile(path + brokenSuffix); err != nil || string(content) != "broken" {
		t.Errorf("the broken file became %q, %v", content, err)
	}
	if got, err := Read(path); err != nil || got.Node == nil || got.Node.Name != "n" || len(got.EndpointSlices) != 1 || len(got.Namespaces) != 1 {
		t.Errorf("it wrote %+v, %v", got, err)
	}

	create := func(name string) {
		t.Helper()
		if _, err := client.CoreV1().Services("default").Create(ctx, &corev1.Service{ObjectMeta: named("default", name)}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create("second")
	waiting(t, clock)
	clock.Step(rest - time.Second)
	if !clock.HasWaiters() {
		t.Error("it writes again before it has rested")
	}
	services(t, path, clock, "second", "web")

	labelled := all.Node.DeepCopy()
	labelled.Labels = map[string]string{corev1.LabelTopologyZone: "z"}
	if _, err := client.CoreV1().Nodes().Update(ctx, labelled, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		pass(clock, gather)
		got, err := Read(path)
		return err == nil && got.Node != nil && got.Node.Labels[corev1.LabelTopologyZone] == "z"
	}, "the node's zone is not written")

	// What is not written yet is at the end.
	create("third")
	eventually(t, func() bool {
		_, there, err := sources.Services.GetStore().GetByKey("default/third")
		return there && err == nil
	}, "the third service is not seen")
	waiting(t, clock)
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	services(t, path, clock, "second", "third", "web")
}

func waiting(t *testing.T, clock *testclock.FakeClock) {
	t.Helper()
	eventually(t, clock.HasWaiters, "it does not wait for the clock")
}

// pass lets time pass while the writer waits. If it passed during a write, that would take long, and a long rest follow.
func pass(clock *testclock.FakeClock, d time.Duration) {
	if clock.HasWaiters() {
		clock.Step(d)
	}
}

// services waits until the file has these, while time goes on.
func services(t *testing.T, path string, clock *testclock.FakeClock, want ...string) {
	t.Helper()
	eventually(t, func() bool {
		pass(clock, gather)
		got, err := Read(path)
		if err != nil || got == nil { // the broken one is aside, and none there yet
			return false
		}
		have := map[string]bool{}
		for _, svc := range got.Services {
			have[svc.Name] = true
		}
		for _, name := range want {
			if !have[name] {
				return false
			}
		}
		return len(have) == len(want)
	}, "the file does not have the services "+strings.Join(want, ", "))
}

func eventually(t *testing.T, done func() bool, otherwise string) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(otherwise)
		}
	}
}
