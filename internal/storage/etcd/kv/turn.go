package kv

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/everynode/everynode/internal/storage/members"
)

// ErrTurnOver says that a write was refused because another server's control loops have
// begun to work. Nothing was written.
var ErrTurnOver = errors.New("the turn of this server's control loops is over: another server's work")

// ErrTurnChanged says that a turn was not taken because its condition did not hold.
var ErrTurnChanged = errors.New("who may take the turn has changed meanwhile")

// TakeTurn begins a turn in the name of a server by writing that under a key, if a lease is still as it was at a
// revision.
func TakeTurn(ctx context.Context, client *clientv3.Client, key, by, lease string, revision int64) (*members.Turn,
	error) {
	ctx, cancel := context.WithTimeout(ctx, turnPatience)
	defer cancel()
	answer, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(lease), "=",
		revision)).Then(clientv3.OpPut(key, by)).Commit()
	if err != nil {
		return nil, fmt.Errorf("take the turn of the control loops: %w", err)
	}
	if !answer.Succeeded {
		return nil, ErrTurnChanged
	}
	return &members.Turn{Key: key, Revision: answer.Header.Revision, Lost: func() {}}, nil
}

// turnPatience is how long a turn may take to begin.
const turnPatience = 10 * time.Second

// InTurns returns keys and values of which each transaction in the name of a turn succeeds only during that turn.
func InTurns(of clientv3.KV) clientv3.KV { return inTurns{of} }

// inTurns has each transaction in the name of a turn succeed only during that turn.
type inTurns struct{ clientv3.KV }

// Txn implements clientv3.KV.
func (k inTurns) Txn(ctx context.Context) clientv3.Txn {
	turn := members.TurnOf(ctx)
	if turn == nil {
		return k.KV.Txn(ctx)
	}
	during := clientv3.Compare(clientv3.ModRevision(turn.Key), "=", turn.Revision)
	return &turnTxn{Txn: k.KV.Txn(ctx), turn: turn, during: during}
}

// Put implements clientv3.KV. What is not a transaction cannot depend on a turn.
func (k inTurns) Put(ctx context.Context, key, value string, options ...clientv3.OpOption) (*clientv3.PutResponse,
	error) {
	if members.TurnOf(ctx) != nil {
		return nil, fmt.Errorf("write %s in a turn without a transaction", key)
	}
	return k.KV.Put(ctx, key, value, options...)
}

// Delete implements clientv3.KV; see Put.
func (k inTurns) Delete(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.DeleteResponse,
	error) {
	if members.TurnOf(ctx) != nil {
		return nil, fmt.Errorf("delete %s in a turn without a transaction", key)
	}
	return k.KV.Delete(ctx, key, options...)
}

// turnTxn adds the condition, and, so that its failure can be told from others, a look at
// what was compared.
type turnTxn struct {
	clientv3.Txn
	turn       *members.Turn
	during     clientv3.Cmp
	conditions []clientv3.Cmp
	otherwise  []clientv3.Op
}

// If implements clientv3.Txn.
func (t *turnTxn) If(conditions ...clientv3.Cmp) clientv3.Txn {
	t.conditions = conditions
	return t
}

// Then implements clientv3.Txn.
func (t *turnTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.Txn = t.Txn.If(append([]clientv3.Cmp{t.during}, t.conditions...)...).Then(ops...)
	return t
}

// Else implements clientv3.Txn.
func (t *turnTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.otherwise = ops
	return t
}

// Commit implements clientv3.Txn.
func (t *turnTxn) Commit() (*clientv3.TxnResponse, error) {
	look := clientv3.OpGet(t.turn.Key, clientv3.WithKeysOnly())
	answer, err := t.Txn.Else(append(append([]clientv3.Op{}, t.otherwise...), look)...).Commit()
	if err != nil || answer.Succeeded {
		return answer, err
	}
	last := len(answer.Responses) - 1
	if revisionOf(answer.Responses[last]) != t.turn.Revision {
		t.turn.Lost()
		return nil, ErrTurnOver
	}
	answer.Responses = answer.Responses[:last]
	return answer, nil
}

func revisionOf(response *pb.ResponseOp) int64 {
	if kvs := response.GetResponseRange().GetKvs(); len(kvs) == 1 {
		return kvs[0].ModRevision
	}
	return 0
}
