package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/agent/pods/podstest"
	"github.com/everynode/everynode/internal/agent/volumes"
	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/change/fetch/fetchpod"
)

// The image has nothing in it but the daemon's own program, which says what it was told and does not end well: it is on
// the node then, and its program never ran.
func TestAPodThatHasItsNodeFetchAnImage(t *testing.T) {
	m := newMachine(t)
	a := podstest.NewAPI()
	s := stories{machine: m, API: a, node: startNode(t, m, a)}
	const daemon = "everynode.test/daemon:1"
	s.importVariant(t, daemon)
	empty := filepath.Join(m.dir, "empty")
	podstest.Must(t, os.Mkdir(empty, 0o755))
	podstest.Must(t, os.Chmod(empty, 0o777))
	s.node.volumes.Given = []volumes.Mount{{Name: "program", ContainerPath: filepath.Dir(fetchpod.Program), HostPath: empty}}
	order := fetchpod.Order{Namespace: "default", Owner: "agent", Daemon: "agent-x", DaemonUID: "uid-daemon", Node: "n1",
		Revision: "b", Image: podstest.BoxImage, Deadline: 10 * time.Minute, Spec: &corev1.PodSpec{
			HostNetwork: true, Containers: []corev1.Container{{Image: daemon, ImagePullPolicy: corev1.PullIfNotPresent}},
		}}
	pod := order.Pod()
	pod.UID = "uid-fetches"
	s.Create(pod)
	got := s.Await(t, pod.UID, "to end", func(p *corev1.Pod) bool {
		return p != nil && (p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed)
	})
	logs := filepath.Join(s.dir, "log/pods/default_"+pod.Name+"_uid-fetches")
	first, err := os.ReadFile(filepath.Join(logs, "program", "0.log"))
	if err != nil || len(first) > 0 {
		t.Errorf("the first container said %q (%v)", first, err)
	}
	if is := fetchpod.Read(got, fetchpod.Answer{}); is.Reason != fetch.Fetched {
		t.Errorf("it tells %+v; its status is %+v", is, got.Status)
	}
	for _, c := range got.Status.ContainerStatuses {
		end := c.State.Terminated
		if end == nil || end.ExitCode != 0 || c.ImageID == "" {
			t.Errorf("container %s is %+v", c.Name, c.State)
		}
		if said, err := os.ReadFile(filepath.Join(logs, c.Name, "0.log")); err != nil || len(said) > 0 {
			t.Errorf("container %s said %q (%v)", c.Name, said, err)
		}
	}
	s.end(t, pod, 1)
}
