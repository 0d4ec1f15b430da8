package etcd

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	etcdkube "go.etcd.io/etcd/client/v3/kubernetes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

type writerKey struct{}

// Who has written more than its share has to wait, and nobody else has.
func TestAWriterHasAShare(t *testing.T) {
	s, err := Start(t.Context(), Options{
		Dir: filepath.Join(t.TempDir(), "d"), NoFsync: true, share: 1 << 20,
		Writer: func(ctx context.Context) string { name, _ := ctx.Value(writerKey{}).(string); return name },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	client, revision := s.newClient(), int64(0)
	put := func(writer string) error {
		ctx := context.WithValue(t.Context(), writerKey{}, writer)
		answer, err := client.OptimisticPut(ctx, "/registry/configmaps/ns/one", []byte(strings.Repeat("x", 128<<10)),
			revision, etcdkube.PutOptions{})
		if err == nil {
			revision = answer.Revision
		}
		return err
	}
	written := 0
	for err = put("greedy"); err == nil && written < 1000; err = put("greedy") {
		written++
	}
	wait, suggested := apierrors.SuggestsClientDelay(err)
	if !apierrors.IsTooManyRequests(err) || !suggested || wait < 1 || written < 8 {
		t.Fatalf("after %d writes the answer is %v, and to wait for %d s", written, err, wait)
	}
	for _, writer := range []string{"another", ""} {
		err = put(writer)
		if err != nil {
			t.Errorf("%q may not write: %v", writer, err)
		}
	}
	if testutil.ToFloat64(s.shares.Refused) == 0 {
		t.Error("it is not counted")
	}
	ctx := context.WithValue(t.Context(), writerKey{}, "greedy")
	_, err = client.OptimisticDelete(ctx, "/registry/configmaps/ns/one", revision, etcdkube.DeleteOptions{})
	if err != nil {
		t.Errorf("what takes no room is refused: %v", err)
	}
}
