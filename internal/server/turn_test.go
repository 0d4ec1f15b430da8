package server

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/server/actors"
	"github.com/everynode/everynode/internal/storage/etcd/kv"
	"github.com/everynode/everynode/internal/storage/members"
)

// turnOf begins a turn of the control loops by way of one server, as if it had been elected.
func turnOf(t *testing.T, m *machine) (turn *members.Turn, lost *atomic.Int32) {
	t.Helper()
	m.mu.Lock()
	s := m.running
	m.mu.Unlock()
	m.eventually("a turn begins", func(ctx context.Context) error {
		lease, err := m.client().CoordinationV1().Leases(members.LoopsNamespace).Get(ctx, members.LoopsLease, metav1.GetOptions{})
		if err != nil {
			return err
		}
		revision, err := strconv.ParseInt(lease.ResourceVersion, 10, 64)
		if err != nil {
			return err
		}
		turn, err = s.etcd.TakeTurn(ctx, s.loopsLeaseKey(), revision)
		return err
	})
	lost = &atomic.Int32{}
	turn.Lost = func() { lost.Add(1) }
	return turn, lost
}

// writes has a control loop of a server write in a turn, by each way that there is.
func writes(t *testing.T, m *machine, turn *members.Turn, name string) (errs map[string]error) {
	t.Helper()
	m.mu.Lock()
	s := m.running
	m.mu.Unlock()
	all := actors.New(members.InTurn(t.Context(), turn), s.api)
	defer all.Stop()
	a, err := all.Controller("daemon-set-controller")
	if err != nil {
		t.Fatal(err)
	}
	event := func(way string) *corev1.Event {
		return &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name + "-" + way}, Type: "Normal", Reason: "Test",
			Message:        "m",
			InvolvedObject: corev1.ObjectReference{Namespace: "default", Kind: "ConfigMap", Name: "c"},
		}
	}
	_, inside := a.Inside.CreateEvent(context.Background(), event("inside"))
	_, client := a.Client.CoreV1().Events("default").Create(context.Background(), event("client"),
		metav1.CreateOptions{})
	return map[string]error{"inside": inside, "client": client}
}

// turnsEnd has a server that stood still wake up: another's control loops work, and it does
// what its own had decided before.
func turnsEnd(t *testing.T, still, other *machine) {
	t.Helper()
	turn, lost := turnOf(t, still)
	for way, err := range writes(t, still, turn, "before") {
		if err != nil {
			t.Errorf("a control loop writes by way of the %s in its turn: %v", way, err)
		}
	}
	next, _ := turnOf(t, other)
	for way, err := range writes(t, still, turn, "after") {
		if err == nil || !strings.Contains(err.Error(), kv.ErrTurnOver.Error()) {
			t.Errorf("a control loop writes by way of the %s when another's turn has begun: %v", way, err)
		}
	}
	if lost.Load() == 0 {
		t.Error("the server does not learn that its turn is over")
	}
	for way, err := range writes(t, other, next, "next") {
		if err != nil && !strings.Contains(err.Error(),
			kv.ErrTurnOver.Error()) { // the true one may have begun one meanwhile
			t.Errorf("the other's control loop writes by way of the %s: %v", way, err)
		}
	}
	events, err := other.client().CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if strings.HasPrefix(e.Name, "after-") {
			t.Errorf("%s was written after its turn", e.Name)
		}
	}
	// Those that lost their turn here give up, and begin another.
	other.eventually("control loops work", func(ctx context.Context) error {
		name := "turns"
		if _, err := other.client().CoreV1().Namespaces().Create(ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil &&
			!strings.Contains(err.Error(), "already exists") {
			return err
		}
		_, err := other.client().CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return errors.Join(err, ctx.Err())
	})
	written(t, fmt.Sprint("turns-of-", still.options.Name), still, still, other)
}

// renewedByAll renews a lease through each server in turn. None may keep that from the others:
// the next one is made of it without a conflict, and every list shows it at once.
func renewedByAll(t *testing.T, all []*machine) {
	t.Helper()
	holder, at := "node-1", metav1.NewMicroTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: holder},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: ptr.To[int32](40),
			RenewTime: &at}}
	lease, err := all[0].client().CoordinationV1().Leases("kube-node-lease").Create(t.Context(), lease,
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for turn := range 9 {
		by := all[turn%len(all)]
		// What is written besides is what would let a server keep a renewal to itself.
		other := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("other-", turn)}}
		if _, err := by.client().CoordinationV1().Leases("default").Create(t.Context(), other,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := by.client().CoordinationV1().Leases("default").List(t.Context(),
			metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		at = metav1.NewMicroTime(at.Add(10 * time.Second))
		lease.Spec.RenewTime = &at
		if lease, err = by.client().CoordinationV1().Leases("kube-node-lease").Update(t.Context(), lease,
			metav1.UpdateOptions{}); err != nil {
			t.Fatalf("renew through %s: %v", by.options.Name, err)
		}
		for _, m := range all {
			list, err := m.client().CoordinationV1().Leases("kube-node-lease").List(t.Context(), metav1.ListOptions{})
			if err != nil || len(list.Items) != 1 || !list.Items[0].Spec.RenewTime.Equal(&at) {
				t.Errorf("%s lists %v, %v after a renewal at %v through %s", m.options.Name, list.Items, err, at,
					by.options.Name)
			}
		}
	}
}
