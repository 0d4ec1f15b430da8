package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/fetch/fetchpod"
	"github.com/everynode/everynode/internal/change/fetch/fetchpod/fetchpodtest"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/server/standalone"
	"github.com/everynode/everynode/internal/simulator/illness"
	"github.com/everynode/everynode/internal/testenv"
)

const fetchFaults = `
faults:
- {name: slow, pods: {image: "example.com/agent:slow"}, slowPull: {takes: 3s}}
- {name: missing, pods: {image: "example.com/agent:missing"}, pullError: {message: "not found"}}
`

// Where no agent of ours can be asked pods pull the images: no daemon is taken away whose image nobody can have, and
// none before its node has it.
func TestPodsFetchImagesBeforeDaemonsAreTaken(t *testing.T) {
	t.Parallel()
	faults, err := illness.Parse([]byte(fetchFaults))
	if err != nil {
		t.Fatal(err)
	}
	env := testenv.Start(t, testenv.SimulatedNodes(5), func(o *config.Options) {
		o.NoDaemonSetController, o.Faults = true, faults
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	access := limited(t, env)
	go func() {
		done <- standalone.Run(ctx, standalone.Options{Config: access, FetchImage: "example.com/everynode:1"})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("the controller ended with: %v", err)
		}
	})
	own, err := everynode.NewForConfig(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	policy := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "careful"}}
	err = yaml.UnmarshalStrict([]byte(`
waves: [{name: canary, count: 1, fetch: true}, {name: others, nodes: {}, maxUnavailable: 2, fetch: true}]
failure: {startDeadline: 2s, then: Rollback}`), &policy.Spec)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := own.RolloutPolicies("default").Create(ctx, policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	create(t, env)
	env.Eventually("the pods are made", updated(env, 1, 5))
	phase := func(want v1alpha1.Phase, words string) {
		t.Helper()
		env.Eventually("the rollout is "+string(want), func(ctx context.Context) error {
			r, err := own.DaemonSetRollouts("default").Get(ctx, "agent", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if s := &r.Status; s.Phase != want || !strings.Contains(s.Message+fmt.Sprint(s.FailedRevisions), words) {
				return fmt.Errorf("it is %s: %s %+v", s.Phase, s.Message, s.FailedRevisions)
			}
			return nil
		})
	}
	noneFetches := func() {
		t.Helper()
		env.Eventually("no pod fetches any more", func(ctx context.Context) error {
			list, err := env.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: fetchpod.Label})
			if err == nil && len(list.Items) > 0 {
				return fmt.Errorf("there are %d", len(list.Items))
			}
			return err
		})
	}
	phase(v1alpha1.PhaseComplete, "")
	before := podUIDs(t, env)

	patch(t, env, `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"example.com/agent:missing"}]}}}}`)
	phase(v1alpha1.PhaseRolledBack, "its images cannot be fetched")
	noneFetches()
	if after := podUIDs(t, env); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("pods are %v, want those of before: %v", after, before)
	}

	seen, err := env.Client.CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan fetchpodtest.History, 1)
	go func() { told <- fetchpodtest.Read(seen) }()
	patch(t, env, `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"example.com/agent:slow"}]}}}}`)
	phase(v1alpha1.PhaseComplete, "")
	env.Eventually("all are changed", updated(env, 3, 5))
	noneFetches()
	seen.Stop()
	h := <-told
	if len(h.Has) != 5 || h.Most > 2 || len(h.Early) > 0 {
		t.Errorf("pods fetched on %d nodes, at most %d at once; daemons were taken early from %v", len(h.Has), h.Most, h.Early)
	}
}
