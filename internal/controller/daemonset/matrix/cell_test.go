package matrix

import (
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
)

// A fleet is mostly cells that are as they should be. Each is small.
func TestSettledCellIsSmall(t *testing.T) {
	const most = 150 // bytes, without the pod
	w := newWorld(Config{})
	w.setDaemonSet(DaemonSetInfo{UID: "logs", Namespace: "default", Name: "logs", Generation: 1, Revision: "a", Strategy: rollingUpdate("1", "0")}, corev1.PodSpec{})
	w.setNode(NodeInfo{Name: "n1"})
	settle := func() {
		for len(w.ready()) > 0 {
			for len(w.inFlight) > 0 {
				w.finish(0, OK, true)
			}
		}
	}
	settle()
	for _, p := range w.pods {
		p.Bound, p.Ready, p.ReadySince = true, true, w.now
		w.setPod(p)
	}
	settle()
	row := w.m.rows["logs"]
	c := row.cells["n1"]
	size := unsafe.Sizeof(*c) + uintptr(cap(c.pods))*unsafe.Sizeof(c.pods[0])
	if why := row.because(c); why != AsWanted || c.tries != nothing || size > most {
		t.Errorf("a cell with [%s] and %+v takes %d bytes, want %d at most", why, *c.tries, size, most)
	}
}

// A pod that has come and gone before its creation is answered is not waited for.
func TestAPodThatIsGoneBeforeTheAnswer(t *testing.T) {
	w := newWorld(Config{})
	w.setDaemonSet(DaemonSetInfo{UID: "logs", Namespace: "default", Name: "logs", Generation: 1, Revision: "a", Strategy: rollingUpdate("1", "0")}, corev1.PodSpec{})
	w.setNode(NodeInfo{Name: "n1"})
	creation := func() *CreatePod {
		t.Helper()
		for _, a := range w.ready() {
			if c, ok := a.(*CreatePod); ok {
				return c
			}
		}
		t.Fatalf("no pod is made\n%s", w.m.Dump())
		return nil
	}
	first := creation()
	w.event(first)
	w.dropPod(w.uidOf(first))
	for len(w.inFlight) > 0 {
		w.finish(0, OK, false)
	}
	creation()
}
