package daemonset

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A controller dies with a creation on its way. The next one knows nothing of
// that, and creates the pod; the late request meets it.
func TestALateCreationOfADeadLeaderMakesNoTwin(t *testing.T) {
	a := newFakeAPI(t)
	const nodes = 5
	for i := range nodes {
		a.add(testNode(fmt.Sprint("n", i)))
	}
	stop := startController(t, a)
	a.add(testDaemonSet("logs"))
	settled(t, a, "logs", nodes)

	// The first one has seen pods come and go before its last request.
	late, held := make(chan struct{}), make(chan struct{}, nodes)
	a.mu.Lock()
	a.holdCreate = func() <-chan struct{} { held <- struct{}{}; return late }
	a.mu.Unlock()
	for _, p := range list[*corev1.Pod](a, kindPod) {
		a.erase(kindPod, p.Namespace, p.Name)
	}
	<-held
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()

	a.mu.Lock()
	a.holdCreate = nil
	a.mu.Unlock()
	runController(t, a)
	eventually(t, func() string {
		if n := len(list[*corev1.Pod](a, kindPod)); n != nodes {
			return fmt.Sprintf("there are %d pods", n)
		}
		return ""
	})
	settled(t, a, "logs", nodes)
	close(late)
	<-stopped
	if got := len(list[*corev1.Pod](a, kindPod)); len(a.twins) > 0 || got != nodes {
		t.Errorf("there are %d pods for %d nodes; pods met: %q", got, nodes, a.twins)
	}
}
