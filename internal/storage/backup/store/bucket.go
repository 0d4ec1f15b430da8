package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

const (
	// partSize is how much of a backup is in memory while it is sent, in bytes.
	partSize = 16 << 20
	// answerPatience is how long a bucket may take to begin an answer.
	answerPatience = 2 * time.Minute
	// tries is how often a request is tried.
	tries = 3
)

// bucket is a store that is spoken to as S3.
type bucket struct {
	client       *minio.Client
	name, prefix string
}

// openBucket reads an address. The keys to the bucket are not in it, since arguments of
// processes can be seen: they are where other tools look for them, too.
func openBucket(u *url.URL) (Store, error) {
	q := u.Query()
	endpoint, err := url.Parse(q.Get("endpoint"))
	if q.Get("endpoint") == "" {
		endpoint, err = &url.URL{Scheme: "https", Host: "s3.amazonaws.com"}, nil
	}
	switch {
	case err != nil || endpoint.Host == "" || endpoint.Scheme != "https" && endpoint.Scheme != "http" ||
		strings.Trim(endpoint.Path, "/") != "":
		return nil, fmt.Errorf("the endpoint %q is not of the form https://HOST", q.Get("endpoint"))
	case u.Host == "":
		return nil, errors.New("no bucket is named; the form is s3://BUCKET/PREFIX?endpoint=https://HOST")
	case u.User != nil:
		return nil, errors.New("the keys of a bucket do not belong into its address; put them into AWS_ACCESS_KEY_ID and " +
			"AWS_SECRET_ACCESS_KEY")
	}
	for name := range q {
		if name != "endpoint" && name != "region" {
			return nil, fmt.Errorf("%q says nothing about a bucket; there are endpoint and region", name)
		}
	}
	transport, err := minio.DefaultTransport(endpoint.Scheme == "https")
	if err != nil {
		return nil, fmt.Errorf("set up the way to the bucket: %w", err)
	}
	transport.ResponseHeaderTimeout = answerPatience
	client, err := minio.New(endpoint.Host, &minio.Options{
		Creds: credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{},
			&credentials.FileAWSCredentials{}, &credentials.IAM{Client: &http.Client{Timeout: answerPatience}}}),
		Secure: endpoint.Scheme == "https", Region: q.Get("region"), Transport: transport, MaxRetries: tries,
	})
	if err != nil {
		return nil, fmt.Errorf("use the bucket: %w", err)
	}
	return &bucket{client, u.Host, strings.Trim(u.Path, "/")}, nil
}

// Names implements Store.
func (b *bucket) Names(ctx context.Context) (names []string, err error) {
	// The listing goes on in the background until its context ends.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	prefix := b.prefix
	if prefix != "" {
		prefix += "/"
	}
	for object := range b.client.ListObjects(ctx, b.name, minio.ListObjectsOptions{Prefix: prefix}) {
		if object.Err != nil {
			return nil, fmt.Errorf("list the backups in the bucket %s: %w", b.name, object.Err)
		}
		if name := strings.TrimPrefix(object.Key, prefix); name != "" && !strings.Contains(name, "/") {
			names = append(names, name)
		}
	}
	return names, nil
}

// Put implements Store. The bucket shows the object when all of it has come.
func (b *bucket) Put(ctx context.Context, name string, fill func(io.Writer) error) (int64, error) {
	from, to := io.Pipe()
	go func() { to.CloseWithError(fill(to)) }()
	counted := &readCounter{Reader: from}
	info, err := b.client.PutObject(ctx, b.name, path.Join(b.prefix, name), counted, -1, minio.PutObjectOptions{
		ContentType: "application/octet-stream", PartSize: partSize, NumThreads: 1,
	})
	// Whoever writes must not wait for ever for somebody who has given up.
	_ = from.CloseWithError(errors.New("the bucket takes no more"))
	if err != nil {
		return 0, fmt.Errorf("send the backup to the bucket %s: %w", b.name, err)
	}
	there, err := b.client.StatObject(ctx, b.name, info.Key, minio.StatObjectOptions{})
	if err != nil {
		return 0, fmt.Errorf("look whether the backup is in the bucket %s: %w", b.name, err)
	}
	if there.Size != counted.size {
		return 0, fmt.Errorf("the bucket %s has %d of the backup's %d bytes", b.name, there.Size, counted.size)
	}
	return there.Size, nil
}

type readCounter struct {
	io.Reader
	size int64
}

func (c *readCounter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.size += int64(n)
	return n, err
}

// Remove implements Store.
func (b *bucket) Remove(ctx context.Context, name string) error {
	if err := b.client.RemoveObject(ctx, b.name, path.Join(b.prefix, name), minio.RemoveObjectOptions{}); err != nil {
		return fmt.Errorf("remove an old backup from the bucket %s: %w", b.name, err)
	}
	return nil
}
