package apistorage

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// feedPage is how many values are read at a time.
const feedPage = 2000

// Feed tells what the database holds of one resource, and what changes, in the
// database's own order and as the bytes that it holds.
type Feed struct {
	client *clientv3.Client
	// root is what all keys begin with and the API's storage does not show;
	// prefix is where the resource's keys begin.
	root, prefix string
}

// NewFeed returns the feed of the resource whose keys the API's storage begins with
// resourcePrefix.
func NewFeed(client *clientv3.Client, root, resourcePrefix string) *Feed {
	root = strings.TrimSuffix(path.Join("/", root), "/")
	return &Feed{client: client, root: root, prefix: root + "/" + strings.Trim(resourcePrefix, "/") + "/"}
}

// List calls each for every value, in the order of keys and all as of one revision,
// which it returns.
func (f *Feed) List(ctx context.Context, each func(key string, value []byte, revision int64) error) (revision int64,
	err error) {
	from, end := f.prefix, clientv3.GetPrefixRangeEnd(f.prefix)
	for {
		options := []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithLimit(feedPage)}
		if revision > 0 {
			options = append(options, clientv3.WithRev(revision))
		}
		page, err := f.client.Get(ctx, from, options...)
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", f.prefix, err)
		}
		if revision == 0 {
			revision = page.Header.Revision
		}
		for _, kv := range page.Kvs {
			if err := each(strings.TrimPrefix(string(kv.Key), f.root), kv.Value, kv.ModRevision); err != nil {
				return 0, err
			}
		}
		if !page.More {
			return revision, nil
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}

// leaderKey marks, among what a client sends, a watch that ends when the database knows no leader for too long.
const leaderKey = "everynode-ends-without-leader"

// EndingWithoutLeader is a context in which a watch ends when the database knows no leader for too long.
func EndingWithoutLeader(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, leaderKey, "true")
}

// EndsWithoutLeader reports whether a watch in a context wants to be told when the database knows no leader for too
// long. Those of the library's caches do not, although they say so: they would load everything again, where all that is
// needed is to wait.
func EndsWithoutLeader(ctx context.Context) bool {
	sent, _ := metadata.FromOutgoingContext(ctx)
	return len(sent.Get(leaderKey)) > 0
}

// Watch calls change for all that changes after a revision, and then reached with the
// revision up to which all was told. What changes in one revision comes before reached is
// called. value is nil for what was deleted. It returns when ctx ends, when one of the two
// fails or when the database ends the watch; with an API error of reason Expired when the
// revision is not kept any more, and of reason ServiceUnavailable when the database knows no leader and so may not hear
// of changes.
func (f *Feed) Watch(ctx context.Context, after int64, change func(key string, value []byte, revision int64) error,
	reached func(revision int64) error) error {
	ctx, cancel := context.WithCancel(EndingWithoutLeader(ctx))
	defer cancel()
	for response := range f.client.Watch(ctx, f.prefix, clientv3.WithPrefix(), clientv3.WithRev(after+1),
		clientv3.WithProgressNotify()) {
		if err := response.Err(); err != nil {
			if errors.Is(err, rpctypes.ErrCompacted) || response.CompactRevision != 0 {
				return apierrors.NewResourceExpired(fmt.Sprintf("watch %s after revision %d: %v", f.prefix, after, err))
			}
			if errors.Is(err, rpctypes.ErrNoLeader) {
				return apierrors.NewServiceUnavailable(fmt.Sprintf("watch %s: %v", f.prefix, err))
			}
			return fmt.Errorf("watch %s: %w", f.prefix, err)
		}
		if response.IsProgressNotify() {
			if err := reached(response.Header.Revision); err != nil {
				return err
			}
			continue
		}
		for _, e := range response.Events {
			var value []byte
			if e.Type != clientv3.EventTypeDelete {
				value = e.Kv.Value
			}
			if err := change(strings.TrimPrefix(string(e.Kv.Key), f.root), value, e.Kv.ModRevision); err != nil {
				return err
			}
		}
		if n := len(response.Events); n > 0 {
			if err := reached(response.Events[n-1].Kv.ModRevision); err != nil {
				return err
			}
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("watch %s: the database ended it", f.prefix)
}

// RequestProgress asks for the revision that a running Watch has reached. It is told to
// that watch when nothing is left to tell.
func (f *Feed) RequestProgress(ctx context.Context) error {
	if err := f.client.RequestProgress(EndingWithoutLeader(ctx)); err != nil {
		return fmt.Errorf("ask how far the watch of %s is: %w", f.prefix, err)
	}
	return nil
}
