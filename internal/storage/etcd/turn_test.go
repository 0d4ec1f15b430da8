package etcd

import (
	"context"
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkube "go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/everynode/everynode/internal/storage/etcd/kv"
	"github.com/everynode/everynode/internal/storage/members"
)

// A write in the name of a turn is refused from the moment at which another has begun.
func TestTurns(t *testing.T) {
	c := newCrowd(t)
	m := c.newMember("one")
	c.start(m)
	client := m.newClient()
	kubernetes := etcdkube.Interface(client)
	plain := t.Context()
	lease, err := kubernetes.OptimisticPut(plain, "/lease", []byte("a"), 0, etcdkube.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.TakeTurn(plain, "/lease", lease.Revision-1); !errors.Is(err, kv.ErrTurnChanged) {
		t.Errorf("a turn is taken with an old lease: %v", err)
	}
	first, err := m.TakeTurn(plain, "/lease", lease.Revision)
	if err != nil {
		t.Fatal(err)
	}
	lost := 0
	first.Lost = func() { lost++ }
	in := members.InTurn(plain, first)
	made, err := kubernetes.OptimisticPut(in, "/x", []byte("1"), 0, etcdkube.PutOptions{GetOnFailure: true})
	if err != nil || !made.Succeeded {
		t.Fatalf("a write in the turn: %+v, %v", made, err)
	}
	// What fails for another reason fails as it does without a turn.
	conflict, err := kubernetes.OptimisticPut(in, "/x", []byte("2"), made.Revision-1,
		etcdkube.PutOptions{GetOnFailure: true})
	if err != nil || conflict.Succeeded || conflict.KV == nil || string(conflict.KV.Value) != "1" {
		t.Errorf("a conflict in the turn: %+v, %v", conflict, err)
	}
	conflict, err = kubernetes.OptimisticPut(in, "/x", []byte("2"), made.Revision-1, etcdkube.PutOptions{})
	if err != nil || conflict.Succeeded {
		t.Errorf("a conflict in the turn, without a look: %+v, %v", conflict, err)
	}
	if _, err := client.Put(in, "/x", "2"); err == nil {
		t.Error("what depends on no turn is written in one")
	}

	second, err := m.TakeTurn(plain, "/lease", lease.Revision)
	if err != nil {
		t.Fatal(err)
	}
	if lost > 0 {
		t.Error("the turn is lost before anything was refused")
	}
	for what, write := range map[string]func(context.Context) error{
		"put": func(ctx context.Context) error {
			_, err := kubernetes.OptimisticPut(ctx, "/x", []byte("old"), made.Revision,
				etcdkube.PutOptions{GetOnFailure: true})
			return err
		},
		"create": func(ctx context.Context) error {
			_, err := kubernetes.OptimisticPut(ctx, "/y", []byte("old"), 0, etcdkube.PutOptions{})
			return err
		},
		"delete": func(ctx context.Context) error {
			_, err := kubernetes.OptimisticDelete(ctx, "/x", made.Revision, etcdkube.DeleteOptions{GetOnFailure: true})
			return err
		},
		"names": func(ctx context.Context) error {
			_, err := client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision("/z"), "=",
				0)).Then(clientv3.OpPut("/z", "")).Commit()
			return err
		},
	} {
		before := lost
		if err := write(in); !errors.Is(err, kv.ErrTurnOver) || lost != before+1 {
			t.Errorf("%s in a turn that is over: %v, told %d times", what, err, lost-before)
		}
	}
	left, err := client.KV.Get(plain, "/", clientv3.WithRange("0"))
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range left.Kvs {
		if string(kv.Value) == "old" || string(kv.Key) == "/z" {
			t.Errorf("%s was written after its turn", kv.Key)
		}
	}
	if _, err := kubernetes.OptimisticPut(members.InTurn(plain, second), "/x", []byte("new"), made.Revision,
		etcdkube.PutOptions{}); err != nil {
		t.Errorf("a write in the new turn: %v", err)
	}
}
