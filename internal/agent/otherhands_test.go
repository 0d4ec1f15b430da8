package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/network"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
	"github.com/everynode/everynode/internal/testenv"
)

// TestRuntimeIsRestarted kills containerd under an agent: its pods run on as they were, and new ones start.
func TestRuntimeIsRestarted(t *testing.T) {
	m := newMachine(t)
	env := testenv.Start(t)
	startAgent(t, m, env, joinToken(t, env))
	before := awaitWord(t, env, "before")
	m.restartRuntime(t, func() {})
	awaitWord(t, env, "after")
	again := awaitWord(t, env, "before")
	was, is := before.Status.ContainerStatuses[0], again.Status.ContainerStatuses[0]
	if is.ContainerID != was.ContainerID || is.RestartCount != 0 {
		t.Errorf("the container was %s and is %s, after %d restarts", was.ContainerID, is.ContainerID, is.RestartCount)
	}
}

// TestRuntimeForgets kills containerd and takes what it has in /run: its containers run on, and it knows nothing of
// them. The pods run again, and nothing of what ran before runs beside them.
func TestRuntimeForgets(t *testing.T) {
	m := newMachine(t)
	env := testenv.Start(t)
	startAgent(t, m, env, joinToken(t, env))
	before := awaitWord(t, env, "before")
	m.restartRuntime(t, func() {
		_ = os.RemoveAll(filepath.Join(m.dir, "state")) // What is mounted there stays, as it does for whoever empties /run.
	})
	env.Eventually("the pod has another container", func(ctx context.Context) error {
		pod, err := env.Client.CoreV1().Pods("default").Get(ctx, "before", metav1.GetOptions{})
		if err == nil && (!podstest.IsReady(pod) ||
			pod.Status.ContainerStatuses[0].ContainerID == before.Status.ContainerStatuses[0].ContainerID) {
			err = fmt.Errorf("status %+v", pod.Status)
		}
		return err
	})
	podstest.Eventually(t, "only one container's processes run", func() bool {
		running := m.containerProcesses()
		slices.Sort(running)
		return len(slices.Compact(running)) == 2 // that of the sandbox, and the container's own
	})
	env.Eventually("an event tells of it", func(ctx context.Context) error {
		list, err := env.Client.CoreV1().Events("default").List(ctx,
			metav1.ListOptions{FieldSelector: "reason=StrayProcessesKilled,involvedObject.name=before"})
		if err == nil && len(list.Items) == 0 {
			err = errors.New("there is none")
		}
		return err
	})
}

// TestNotesOfAddressesAreRemoved empties the folder in which the plugin notes which addresses pods have.
func TestNotesOfAddressesAreRemoved(t *testing.T) {
	m := newMachine(t)
	s := stories{machine: m, API: podstest.NewAPI()}
	s.node = startNode(t, m, s.API, func(c *cri.Config) {
		c.NoteAddresses = network.LeasesIn(filepath.Join(m.dir, "ipam/test")).Note
	})
	held := map[string]string{}
	var all []*corev1.Pod
	for _, name := range []string{"first", "second", "third"} {
		pod := podstest.Pod(name, "sleep")
		pod.Spec.HostNetwork = false
		s.Create(pod)
		address := s.Await(t, pod.UID, "to be ready", podstest.IsReady).Status.PodIP
		if other := held[address]; other != "" {
			t.Errorf("%s has %s, the address of %s", name, address, other)
		}
		held[address] = name
		all = append(all, pod)
		podstest.Must(t, os.RemoveAll(filepath.Join(m.dir, "ipam")))
	}
	for _, pod := range all {
		s.end(t, pod, 1)
	}
}
