package server_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/testenv"
)

// pretend has a server of a newer program live, as far as the others can see, until ctx ends.
func pretend(ctx context.Context, t *testing.T, client kubernetes.Interface) {
	t.Helper()
	leases := client.CoordinationV1().Leases("kube-system")
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "apiserver-newer",
		Labels:      map[string]string{"apiserver.kubernetes.io/identity": "everynode-server"},
		Annotations: map[string]string{"everynode.io/advertise-address": "127.0.0.1:1", "everynode.io/schema": "9999"}}}
	l.Spec.HolderIdentity, l.Spec.RenewTime = ptr.To("newer"), &metav1.MicroTime{Time: time.Now()}
	l, err := leases.Create(t.Context(), l, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			l.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
			next, err := leases.Update(ctx, l, metav1.UpdateOptions{})
			switch {
			case err == nil:
				l = next
			case ctx.Err() == nil:
				t.Errorf("the newer server cannot say that it lives: %v", err)
			}
		}
	}()
}

// A server that does not know all of what is stored leads while no server lives that knows more, and gives way to one
// that does. When that one is gone, as after a downgrade on purpose, it leads again.
func TestAServerGivesWayToOneThatKnowsMore(t *testing.T) {
	t.Parallel()
	c := startMembers(t, 1)
	env := testenv.Start(t, c.use)
	ctx := t.Context()
	holder := func(ctx context.Context) (string, error) {
		l, err := env.Client.CoordinationV1().Leases("kube-system").Get(ctx, "everynode-controllers", metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return ptr.Deref(l.Spec.HolderIdentity, ""), nil
	}
	leads := func(ctx context.Context) error {
		who, err := holder(ctx)
		if err == nil && who == "" {
			err = errors.New("nobody leads")
		}
		return err
	}
	env.Eventually("its control loops work", leads)
	own, err := everynode.NewForConfig(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	p := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	if _, err := own.RolloutPolicies("default").Create(ctx, p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const key = "/registry/everynode.io/rolloutpolicies/default/p"
	raw := c.client()
	stored, err := raw.Get(ctx, key)
	if err != nil || len(stored.Kvs) != 1 {
		t.Fatalf("the policy is not stored: %v", err)
	}
	text := strings.Replace(string(stored.Kvs[0].Value), `"spec":{`, `"spec":{"quorum":{"of":3},`, 1)
	if _, err := raw.Put(ctx, key, text); err != nil {
		t.Fatal(err)
	}
	env.Eventually("it sees what it does not know", func(ctx context.Context) error {
		p, err := own.RolloutPolicies("default").Get(ctx, "p", metav1.GetOptions{})
		if err == nil && newer.Fields(p) == "" {
			err = errors.New("it is as it was")
		}
		return err
	})
	if err := leads(ctx); err != nil {
		t.Errorf("with nobody who knows more: %v", err)
	}
	living, dies := context.WithCancel(ctx)
	defer dies()
	pretend(living, t, env.Client)
	env.Eventually("it gives way, and says so", func(ctx context.Context) error {
		who, err := holder(ctx)
		if err != nil || who != "" {
			return fmt.Errorf("%q leads: %w", who, err)
		}
		all, err := env.Client.CoordinationV1().Leases("kube-system").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, l := range all.Items {
			if why := l.Annotations["everynode.io/gives-way"]; strings.Contains(why, "rolloutpolicy default/p") && strings.Contains(why, "server newer") {
				return nil
			}
		}
		return errors.New("it does not say why")
	})
	dies()
	env.Eventually("it leads again", leads)
}
