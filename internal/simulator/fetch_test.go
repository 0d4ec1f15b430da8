package simulator

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/change/fetch"
)

// ask has the pod's node be asked for an image.
func (c *cluster) ask(pod, image string) {
	c.t.Helper()
	r := fetch.Request{Revision: "b", At: time.Now(), Images: []fetch.Image{{Image: image}}}
	text, err := r.Text()
	if err != nil {
		c.t.Fatal(err)
	}
	p := c.pod(pod).DeepCopy()
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, fetch.Name, text)
	if _, err := c.client.CoreV1().Pods(p.Namespace).Update(c.t.Context(), p, metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// A simulated node fetches what it is asked for in the time that a pull takes, and its next pod does not pull again.
func TestFetching(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := plan(t, `
faults:
- {name: far, pods: {image: "demo:2"}, slowPull: {takes: 5m}}
- {name: full, nodes: {matchLabels: {kubernetes.io/hostname: sim-0002}}, pods: {image: "demo:3"}, pullError: {message: no space left on device}}`)
		c := start(t, Config{Nodes: 2, Faults: slow}, nil)
		c.bind(newPod("p", "demo:1"), "sim-0001")
		c.bind(newPod("q", "demo:1"), "sim-0002")
		c.ask("p", "demo:2")
		c.pass(4 * time.Minute)
		if got := fetch.ReportOf(c.pod("p")); got.Revision != "b" || got.Reason != "" {
			t.Errorf("after 4 min: %+v", got)
		}
		c.pass(2 * time.Minute)
		if got := fetch.ReportOf(c.pod("p")); got.Reason != fetch.Fetched {
			t.Errorf("after 6 min: %+v", got)
		}
		c.bind(newPod("next", "demo:2"), "sim-0001")
		c.pass(time.Second)
		if !ready(c.pod("next")) {
			t.Error("the next pod pulls again")
		}
		c.ask("q", "demo:3")
		c.pass(time.Second)
		if got := fetch.ReportOf(c.pod("q")); got.Reason != fetch.NoSpace {
			t.Errorf("a full node: %+v", got)
		}
		c.annotate("sim-0002", "none")
		c.pass(time.Minute)
		if got := fetch.ReportOf(c.pod("q")); got.Reason != fetch.Fetched {
			t.Errorf("a node that was full: %+v", got)
		}
		p := c.pod("q").DeepCopy()
		delete(p.Annotations, fetch.Name)
		if _, err := c.client.CoreV1().Pods(p.Namespace).Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		c.pass(time.Minute)
		for _, cond := range c.pod("q").Status.Conditions {
			if cond.Type == fetch.Condition {
				t.Errorf("what was taken back is answered: %+v", cond)
			}
		}
	})
}

// A node that an older release registered says after the upgrade that it can be asked. Who takes the label away then
// means it.
func TestNodesOfAnOlderReleaseFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{Nodes: 2}, nil)
		c.end()
		unlabel := func(of *cluster) {
			old := of.node("sim-0001").DeepCopy()
			delete(old.Labels, fetch.Name)
			if _, err := of.client.CoreV1().Nodes().Update(t.Context(), old, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		labels := c.node("sim-0001").Labels
		unlabel(c)
		again := start(t, Config{Nodes: 2}, c)
		again.pass(time.Minute)
		if got := again.node("sim-0001").Labels; !maps.Equal(got, labels) {
			t.Errorf("a node from before has the labels %v, want %v", got, labels)
		}
		unlabel(again)
		again.client.ClearActions()
		again.pass(5 * time.Minute)
		if got := again.node("sim-0001").Labels[fetch.Name]; got != "" {
			t.Errorf("the label is back: %q", got)
		}
		for _, action := range again.client.Actions() {
			if action.Matches("patch", "nodes") {
				t.Error("a node is labelled more than once")
			}
		}
	})
}
