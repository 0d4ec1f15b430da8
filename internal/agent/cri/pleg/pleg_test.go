package pleg

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/everynode/everynode/internal/agent/cri/labels"
)

// lists is a runtime that lists what a test says, and does nothing else.
type lists struct {
	internalapi.RuntimeService
	sandboxes  []*runtimeapi.PodSandbox
	containers []*runtimeapi.Container
}

func (l *lists) ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	return l.sandboxes, nil
}

func (l *lists) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return l.containers, nil
}

func randomID(r *rand.Rand) string {
	return fmt.Sprintf("%016x%016x%016x%016x", r.Uint64(), r.Uint64(), r.Uint64(), r.Uint64())
}

// A pod is looked at again whenever anything of it changed, whatever its containers' IDs are and however many change
// at once.
func TestEveryChangeIsSeen(t *testing.T) {
	const pods = 400
	for _, change := range []struct {
		name  string
		apply func(sandbox *runtimeapi.PodSandbox, first, second *runtimeapi.Container)
	}{
		{"both containers exit", func(_ *runtimeapi.PodSandbox, first, second *runtimeapi.Container) {
			first.State, second.State = runtimeapi.ContainerState_CONTAINER_EXITED, runtimeapi.ContainerState_CONTAINER_EXITED
		}},
		{"one container exits", func(_ *runtimeapi.PodSandbox, first, _ *runtimeapi.Container) {
			first.State = runtimeapi.ContainerState_CONTAINER_EXITED
		}},
		{"one container exits and the other is created again",
			func(_ *runtimeapi.PodSandbox, first, second *runtimeapi.Container) {
				first.State, second.State = runtimeapi.ContainerState_CONTAINER_EXITED, runtimeapi.ContainerState_CONTAINER_CREATED
			}},
		{"the sandbox ends", func(sandbox *runtimeapi.PodSandbox, _, _ *runtimeapi.Container) {
			sandbox.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		}},
		{"another container takes its place", func(_ *runtimeapi.PodSandbox, first, _ *runtimeapi.Container) {
			first.Id = "another"
		}},
		{"the container leaves", func(_ *runtimeapi.PodSandbox, first, _ *runtimeapi.Container) {
			delete(first.Labels, labels.PodUID)
		}},
	} {
		everyWay(t, change.name, func(t *testing.T, newRuntime func(*lists) *Generator) {
			random, l := rand.New(rand.NewPCG(1, 2)), &lists{}
			for i := range pods {
				uid := fmt.Sprint("pod-", i)
				labels := func() map[string]string { return map[string]string{labels.PodUID: uid} }
				l.sandboxes = append(l.sandboxes, &runtimeapi.PodSandbox{Id: randomID(random), Labels: labels()})
				for range 2 {
					l.containers = append(l.containers, &runtimeapi.Container{Id: randomID(random), Labels: labels(),
						State: runtimeapi.ContainerState_CONTAINER_RUNNING})
				}
			}
			r := newRuntime(l)
			before, err := r.look(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			random.Shuffle(len(l.containers), func(i, j int) {
				l.containers[i], l.containers[j] = l.containers[j],
					l.containers[i]
			})
			same, err := r.look(t.Context(), before)
			if err != nil {
				t.Fatal(err)
			}
			compare(before.pods, same.pods, func(uid types.UID) { t.Errorf("%s is said to have changed, and only the order is another", uid) })
			byPod := map[string][]*runtimeapi.Container{}
			for _, c := range l.containers {
				byPod[c.Labels[labels.PodUID]] = append(byPod[c.Labels[labels.PodUID]], c)
			}
			for _, s := range l.sandboxes {
				pair := byPod[s.Labels[labels.PodUID]]
				change.apply(s, pair[0], pair[1])
			}
			after, err := r.look(t.Context(), same)
			if err != nil {
				t.Fatal(err)
			}
			seen := map[types.UID]bool{}
			compare(before.pods, after.pods, func(uid types.UID) { seen[uid] = true })
			if len(seen) != pods {
				t.Errorf("%d of %d pods were seen to change", len(seen), pods)
			}
		})
	}
}
