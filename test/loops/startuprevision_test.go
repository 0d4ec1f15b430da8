package loops

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/server/standalone"
)

// halted has the DaemonSet cni stand at its canary, with a template that wants its pods on other nodes.
func (j *joining) halted(selector string) {
	j.t.Helper()
	j.Eventually("all daemons are up to date", func(ctx context.Context) error {
		ds, err := j.Client.AppsV1().DaemonSets("default").Get(ctx, "cni", metav1.GetOptions{})
		if s := &ds.Status; err == nil && (s.ObservedGeneration != ds.Generation || s.NumberAvailable != 2 ||
			s.UpdatedNumberScheduled != 2) {
			err = fmt.Errorf("the status is %+v", ds.Status)
		}
		return err
	})
	p := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "careful"}}
	one := int32(1)
	p.Spec.Waves = []v1alpha1.Wave{{Name: "canary", Count: &one, Approval: v1alpha1.ApprovalManual}}
	if _, err := j.own.RolloutPolicies("default").Create(j.t.Context(), p, metav1.CreateOptions{}); err != nil {
		j.t.Fatal(err)
	}
	phase := func(want v1alpha1.Phase) {
		j.t.Helper()
		j.Eventually("the rollout is "+string(want), func(ctx context.Context) error {
			r, err := j.own.DaemonSetRollouts("default").Get(ctx, "cni", metav1.GetOptions{})
			if err != nil {
				return err
			}
			ds, err := j.Client.AppsV1().DaemonSets("default").Get(ctx, "cni", metav1.GetOptions{})
			if err == nil && (r.Status.Phase != want || r.Status.DaemonSetGeneration != ds.Generation) {
				err = fmt.Errorf("it is %s: %s", r.Status.Phase, r.Status.Message)
			}
			return err
		})
	}
	phase(v1alpha1.PhaseComplete)
	_, err := j.Client.AppsV1().DaemonSets("default").Patch(j.t.Context(), "cni", types.MergePatchType,
		[]byte(`{"spec":{"template":{"spec":{"nodeSelector":`+selector+`}}}}`), metav1.PatchOptions{})
	if err != nil {
		j.t.Fatal(err)
	}
	phase(v1alpha1.PhaseWaitingForApproval)
}

// everywhere runs a test with the DaemonSet controller in the server, and with one that is another process.
func everywhere(t *testing.T, test func(t *testing.T, j *joining)) {
	t.Parallel()
	t.Run("in the server", func(t *testing.T) {
		t.Parallel()
		test(t, startJoining(t))
	})
	t.Run("elsewhere", func(t *testing.T) {
		t.Parallel()
		j := startJoining(t, func(o *config.Options) { o.NoDaemonSetController = true })
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() {
			done <- standalone.Run(ctx, standalone.Options{Config: j.Config, LeaderElection: true,
				LeaseNamespace: "kube-system", LeaseName: "everynode-daemonset-controller"})
		}()
		t.Cleanup(func() {
			stop()
			if err := <-done; err != nil {
				t.Errorf("the controller ended with: %v", err)
			}
		})
		test(t, j)
	})
}

// A new node waits for the daemon that it gets: that of the revision which is stable, also while the newest template
// would not have one there.
func TestANewNodeWaitsForItsOwnRevision(t *testing.T) { everywhere(t, waitsForItsOwnRevision) }

func waitsForItsOwnRevision(t *testing.T, j *joining) {
	t.Helper()
	j.daemonSet("cni")
	j.join("a")
	j.join("b")
	j.halted(`{"disk":"typo"}`)
	j.mu.Lock()
	j.sick["cni/new"] = true
	j.mu.Unlock()
	j.startup("all", groupOf("cni"))
	j.join("new")
	j.Eventually("the daemon of the stable revision is there", func(context.Context) error {
		if n := len(j.podsOn("new")); n != 1 {
			return fmt.Errorf("%d pods are", n)
		}
		return nil
	})
	time.Sleep(time.Second)
	j.gate("new", "all_1")
	j.heal("cni", "new")
	j.gate("new", "")
}

// A new node does not wait for a daemon that only the newest template would have there, and its own revision has not.
func TestANewNodeWaitsForNobodyElsesRevision(t *testing.T) {
	everywhere(t, waitsForNobodyElsesRevision)
}

func waitsForNobodyElsesRevision(t *testing.T, j *joining) {
	t.Helper()
	j.daemonSet("cni")
	for _, name := range []string{"a", "b"} {
		j.join(name)
		_, err := j.Client.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"disk":"ssd"}}}`), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := j.Client.AppsV1().DaemonSets("default").Patch(t.Context(), "cni", types.MergePatchType,
		[]byte(`{"spec":{"template":{"spec":{"nodeSelector":{"disk":"ssd"}}}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	j.halted(`null`)
	j.startup("all", groupOf("cni"))
	j.join("new")
	j.gate("new", "")
}
